"""Operations on lists that flow through a graph."""
