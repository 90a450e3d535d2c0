"""Whether two accesses meet: distances, slots, footprints, independence, overlap."""
