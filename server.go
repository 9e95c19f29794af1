package tallyman

// Info describes a server.
type Info struct {
	Version    string `json:"version"`
	Data       string `json:"data"`   // its data folder
	Listen     string `json:"listen"` // "" when it listens on its socket only
	MaxRunning int    `json:"max_running"`
	PID        int    `json:"pid"`
}

// PruneRequest says what to remove: runs that ended longer ago than Age, and
// their events and artifacts.
type PruneRequest struct {
	Age    Duration `json:"age"`
	DryRun bool     `json:"dry_run,omitempty"`
}

// PruneResult says what was removed, or with DryRun would be.
type PruneResult struct {
	Runs  int   `json:"runs"`
	Blobs int   `json:"blobs"`
	Bytes int64 `json:"bytes"`
}
