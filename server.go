package tallyman

// Info describes a server.
type Info struct {
	Version    string `json:"version"`
	Data       string `json:"data"`   // its data folder
	Listen     string `json:"listen"` // "" when it listens on its socket only
	URL        string `json:"url"`    // where it is reached over TCP, "" likewise
	MaxRunning int    `json:"max_running"`
	PID        int    `json:"pid"`
	// Namespaces are those of a cluster whose agents it has, beside its own.
	Namespaces []string `json:"namespaces,omitempty"`
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
