"""Tiers, channels, the block store of a machine, eviction policies, session and global prefix views."""
