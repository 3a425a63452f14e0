"""What a page says, as plain dictionaries that JSON can hold."""
