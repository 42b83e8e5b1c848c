"""What requests say of the blocks they leave: a session is over, keep them so long, let them wait below."""
