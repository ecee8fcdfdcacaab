"""A collection decoded once, on disk: immutable shards of u8 pixels and one checksummed manifest that names them.

::

    STORE/
      patchtrace-store.json    the manifest; takes its name by a rename, after everything that it names
      patchtrace-store.lock    held by the one process that may write
      journal.json             shards that an unfinished run has written
      shards/<sha256>.npy      pixels (images, channels, height, width)
      shards/<sha256>.json     ids, hashes, sizes and times of the images of a shard

A file in ``shards`` is named by its content and never changed. An update writes new ones and then a new manifest, so a
reader sees the old state or the new one, and one that has the old state open goes on with it.
"""
