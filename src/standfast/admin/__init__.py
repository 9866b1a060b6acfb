"""Operations on a whole store: health, size, copies, moves and undo."""
