package tallyman

// Class groups reasons by who has to do something about them.
type Class string

// The classes.
const (
	ClassOK       Class = "ok"
	ClassAgent    Class = "agent"
	ClassProvider Class = "provider"
	ClassLimit    Class = "limit"
	ClassInfra    Class = "infra"
	ClassConfig   Class = "config"
	ClassUser     Class = "user"
)

// Reason says why an attempt or a run ended. The set is closed.
type Reason string

// The reasons, by class.
const (
	Completed Reason = "Completed"

	AgentError     Reason = "AgentError"
	NoResult       Reason = "NoResult"
	NoOutput       Reason = "NoOutput"
	OutputInvalid  Reason = "OutputInvalid"
	RefusedByModel Reason = "RefusedByModel"

	RateLimited   Reason = "RateLimited"
	Overloaded    Reason = "Overloaded"
	ProviderError Reason = "ProviderError"
	AuthExpired   Reason = "AuthExpired"

	DeadlineExceeded Reason = "DeadlineExceeded"
	IdleTimeout      Reason = "IdleTimeout"
	MaxTurns         Reason = "MaxTurns"
	BudgetExceeded   Reason = "BudgetExceeded"
	TokenLimit       Reason = "TokenLimit"
	OutputTooLarge   Reason = "OutputTooLarge"

	OOMKilled    Reason = "OOMKilled"
	Evicted      Reason = "Evicted"
	Preempted    Reason = "Preempted"
	NodeLost     Reason = "NodeLost"
	PodDeleted   Reason = "PodDeleted"
	RunnerLost   Reason = "RunnerLost"
	StartTimeout Reason = "StartTimeout"
	BackendError Reason = "BackendError"

	InvalidSpec       Reason = "InvalidSpec"
	ImagePullFailed   Reason = "ImagePullFailed"
	ConfigMissing     Reason = "ConfigMissing"
	SetupFailed       Reason = "SetupFailed"
	Unschedulable     Reason = "Unschedulable"
	ServerUnreachable Reason = "ServerUnreachable"
	JournalMismatch   Reason = "JournalMismatch"

	ReasonStopped Reason = "Stopped"
	Superseded    Reason = "Superseded"
	Rejected      Reason = "Rejected"
)

var classes = map[Reason]Class{
	Completed:  ClassOK,
	AgentError: ClassAgent, NoResult: ClassAgent, NoOutput: ClassAgent, OutputInvalid: ClassAgent, RefusedByModel: ClassAgent,
	RateLimited: ClassProvider, Overloaded: ClassProvider, ProviderError: ClassProvider, AuthExpired: ClassProvider,
	DeadlineExceeded: ClassLimit, IdleTimeout: ClassLimit, MaxTurns: ClassLimit, BudgetExceeded: ClassLimit, TokenLimit: ClassLimit, OutputTooLarge: ClassLimit,
	OOMKilled: ClassInfra, Evicted: ClassInfra, Preempted: ClassInfra, NodeLost: ClassInfra, PodDeleted: ClassInfra, RunnerLost: ClassInfra, StartTimeout: ClassInfra, BackendError: ClassInfra,
	InvalidSpec: ClassConfig, ImagePullFailed: ClassConfig, ConfigMissing: ClassConfig, SetupFailed: ClassConfig, Unschedulable: ClassConfig, ServerUnreachable: ClassConfig, JournalMismatch: ClassConfig,
	ReasonStopped: ClassUser, Superseded: ClassUser, Rejected: ClassUser,
}

// Class returns the reason's class, "" for a reason that does not exist.
func (r Reason) Class() Class { return classes[r] }

// Valid reports whether the reason is one of the set.
func (r Reason) Valid() bool { return classes[r] != "" }

// State is the terminal state that a run ends in for this reason. An unknown
// reason is a failure: unknown is never success.
func (r Reason) State() State {
	switch r.Class() {
	case ClassOK:
		return Succeeded
	case ClassUser:
		return Stopped
	default:
		return Failed
	}
}

// Reasons returns every reason, for documentation and for tests.
func Reasons() []Reason {
	all := make([]Reason, 0, len(classes))
	for r := range classes {
		all = append(all, r)
	}
	return all
}

// WaitReason says which gate holds back a run that is queued or starting.
type WaitReason string

// The waiting reasons.
const (
	AgentPaused        WaitReason = "AgentPaused"
	AgentCap           WaitReason = "AgentCap"
	GlobalCap          WaitReason = "GlobalCap"
	ClusterCap         WaitReason = "ClusterCap"
	ConcurrencyKey     WaitReason = "ConcurrencyKey"
	Budget             WaitReason = "Budget"
	Backoff            WaitReason = "Backoff"
	CredentialCooldown WaitReason = "CredentialCooldown"
	Quota              WaitReason = "Quota"
	ClusterUnknown     WaitReason = "ClusterUnknown"
	Approval           WaitReason = "Approval"
	NoBackend          WaitReason = "NoBackend"
	// PodPending: the cluster has the attempt and has not started its agent.
	PodPending WaitReason = "PodPending"
)
