"""The presets that come with the catalog, as JSON documents."""
