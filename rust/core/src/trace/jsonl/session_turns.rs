//! The session and turn of each row: by its session's name, or by the chain of chats.

use std::collections::HashMap;

use super::super::columns::{Sessions, NO_SESSION};
use super::super::json::Cursor;
use super::super::problem::Refusal;
use super::row::Row;

/// The session of a row (None: a new session), and its turn.
pub struct SessionTurn {
    pub session: Option<i32>,
    pub turn: i32,
    pub orphan: bool,
}

/// The sessions and chats of the rows so far.
#[derive(Default)]
pub struct SessionTurns {
    pub sessions: Sessions,
    /// Chat name → (session, turn).
    chats: HashMap<String, (i32, i32)>,
}

impl SessionTurns {
    /// The session and turn of a row, by its session's name or by the chain of chats; changes nothing.
    pub fn find(&self, c: &Cursor, row: &Row) -> Result<SessionTurn, Refusal> {
        let at = |session: Option<i32>, turn: i32, orphan: bool| {
            Ok(SessionTurn {
                session,
                turn,
                orphan,
            })
        };
        let Some(chat) = &row.conversation.chat else {
            let session = row
                .conversation
                .session
                .as_ref()
                .map(|name| self.sessions.get(name));
            return match session {
                None => at(None, row.conversation.turn.unwrap_or(0), false),
                Some(None) => at(None, row.conversation.turn.unwrap_or(0), false),
                Some(Some(n)) => at(
                    Some(n),
                    row.conversation
                        .turn
                        .unwrap_or(self.sessions.turns[n as usize]),
                    false,
                ),
            };
        };
        let wrong = |what: &str| c.problem(row.at.chat, "session", what).got(chat.as_ref());
        if self.chats.contains_key(chat.as_ref()) {
            return Err(wrong("chat named twice"));
        }
        match row.conversation.parent.as_deref() {
            Some(parent) if parent == chat => Err(wrong("chat is its own parent")),
            Some(parent) => match self.chats.get(parent) {
                Some(&(session, turn)) => at(Some(session), turn + 1, false),
                None => at(None, 0, true),
            },
            None => at(None, 0, false),
        }
    }

    /// Assigns an accepted row its session, creating the session if needed.
    pub fn settle(&mut self, row: &Row, slot: &SessionTurn) -> (i32, i32) {
        let name = row
            .conversation
            .chat
            .as_ref()
            .or(row.conversation.session.as_ref());
        let session = match (slot.session, name) {
            (Some(session), _) => session,
            (None, Some(name)) => self.sessions.number(name),
            (None, None) => return (NO_SESSION, slot.turn),
        };
        if let Some(chat) = &row.conversation.chat {
            self.chats
                .insert(chat.clone().into_owned(), (session, slot.turn));
        } else {
            self.sessions.turns[session as usize] = slot.turn.saturating_add(1);
        }
        (session, slot.turn)
    }
}
