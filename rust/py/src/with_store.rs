//! A call with whichever store a replica serves from.

/// Calls a method of the replica with whichever store it serves from; what a policy in Python raised comes out.
macro_rules! with_store {
    ($self:ident, $py:ident, $replica:ident, $store:ident => $call:expr) => {{
        let $replica = &mut $self.replica;
        match &$self.store {
            $crate::fleet::StoreHandle::Tree(tree) => {
                let tree = &mut *tree.try_borrow_mut($py)?;
                let answer = {
                    let $store = &mut tree.0;
                    $call
                };
                $crate::order::raised(&tree.1, answer).and_then($crate::refusal::answered)
            }
            $crate::fleet::StoreHandle::Pool(pool) => {
                let $store = &mut pool.try_borrow_mut($py)?.0;
                $crate::refusal::answered($call)
            }
            $crate::fleet::StoreHandle::Radix(radix) => {
                let $store = &mut radix.try_borrow_mut($py)?.0;
                $crate::refusal::answered($call)
            }
            $crate::fleet::StoreHandle::Groups(groups) => {
                let $store = &mut groups.try_borrow_mut($py)?.0;
                $crate::refusal::answered($call)
            }
            $crate::fleet::StoreHandle::TieredPool(pool) => {
                let $store = &mut pool.try_borrow_mut($py)?.0;
                $crate::refusal::answered($call)
            }
            $crate::fleet::StoreHandle::Tokens(tokens) => {
                let $store = &mut tokens.try_borrow_mut($py)?.0;
                $crate::refusal::answered($call)
            }
            $crate::fleet::StoreHandle::HiCache(hicache) => {
                let $store = &mut hicache.try_borrow_mut($py)?.0;
                $crate::refusal::answered($call)
            }
        }
    }};
}

pub(crate) use with_store;
