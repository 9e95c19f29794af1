package tallyman

// Places in an attempt's Pod: whoever makes the Pod and the runner in it agree
// on them.
const (
	PodRunner     = "/tallyman-runner"              // in an image that holds the runner
	PodInstall    = "/tallyman-install"             // the runner's volume, as the init container sees it
	PodRunnerDir  = "/tallyman"                     // and as the agent's container does
	PodState      = "/tallyman-state"               // journal, and what the harness's adapter writes
	PodWork       = "/workspace"                    // of an attempt whose workspace is fresh
	PodHome       = "/home/agent"                   // HOME
	PodTmp        = "/tmp"                          // TMPDIR
	PodChannel    = "/var/run/secrets/tallyman"     // token; ca.crt where the server has an authority of its own
	PodSecrets    = "/var/run/secrets/tallyman-env" // what envFrom names, for masking: a folder each, a file per key
	PodRoots      = "/var/run/tallyman-roots"       // ca.crt with private roots for agents
	PodAgent      = "agent"                         // name of the agent's container
	PodLastWord   = "/dev/termination-log"          // for a LastWord
	TokenAudience = "tallyman-runner"               // of the token in PodChannel
)
