"""Words of the trade, pure: requirements, instance types, snapshots, problems, plans, reasons."""
