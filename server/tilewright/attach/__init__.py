"""`tilewright init`: task files for what a user already has, shown before they are written."""
