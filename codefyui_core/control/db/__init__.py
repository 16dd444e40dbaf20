"""The control plane's database: the only room that imports SQLAlchemy."""
