"""Pure judgement of a hanging job: where its ranks are, and which of them keeps the others waiting."""
