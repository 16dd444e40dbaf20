"""The pages that the control plane serves: static files and the plugin that says where they are."""
