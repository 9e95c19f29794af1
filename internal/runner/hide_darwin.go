package runner

func hide() error { return nil }
