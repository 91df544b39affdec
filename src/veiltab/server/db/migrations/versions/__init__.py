"""The steps of the schema, one file each; a step that was published is never changed."""
