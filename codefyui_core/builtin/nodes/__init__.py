"""The node types that every install has. Nothing here imports torch or any other vendor library at the top."""
