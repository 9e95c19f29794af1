package runner

import "os"

// widen leaves the pipe as it is: its size cannot be set here.
func widen(*os.File) {}
