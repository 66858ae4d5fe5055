"""An upgrade of a RayService: its weighted route, traffic record, controls, receipt and events."""
