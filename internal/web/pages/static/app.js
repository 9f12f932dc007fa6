// What makes pages live.
