"""Events as a server sends them: headers, kinds, compressed transactions."""
