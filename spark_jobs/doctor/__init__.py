"""The deep check of a store: tasks that read every record, unit and entry for the checks of :mod:`storage.doctor`."""
