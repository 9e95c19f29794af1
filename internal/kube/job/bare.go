package job

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/envfrom"
)

// bare completes the container of an image that is run as it is: what a runner
// would tell the agent, it is told by variables.
func (c Cluster) bare(w Work, a corev1.Container) (corev1.Container, error) {
	if err := checkBare(w.Spec); err != nil {
		return a, err
	}
	if int64(len(w.Prompt)) < w.Bytes { // such a request is refused when it comes
		return a, Invalid("prompt", "has %d bytes, of which a variable can hold %d", w.Bytes, len(w.Prompt))
	}
	a.Command = w.Spec.Command
	told := []tallyman.EnvVar{
		{Name: "TALLYMAN_RUN", Value: w.Run.Name}, {Name: "TALLYMAN_RUN_ID", Value: w.Run.ID},
		{Name: "TALLYMAN_ATTEMPT_NO", Value: strconv.Itoa(w.Attempt)}, {Name: "TALLYMAN_PROMPT", Value: w.Prompt},
	}
	for _, v := range envfrom.LastWins(append(told, w.Spec.Env...)) {
		a.Env = append(a.Env, corev1.EnvVar{Name: v.Name, Value: strings.ReplaceAll(v.Value, "$", "$$")})
	}
	return a, nil
}

// checkBare refuses what an image without a runner cannot do.
func checkBare(spec tallyman.AgentSpec) error {
	var wrong []string
	for name, asked := range map[string]bool{
		"limits.idle": spec.Limits.Idle != nil, "limits.tool": spec.Limits.Tool != nil, "limits.maxTurns": spec.Limits.MaxTurns != nil,
		"limits.budgetUSD": spec.Limits.BudgetUSD != nil, "limits.maxTokens": spec.Limits.MaxTokens != nil,
		"promptFile": spec.PromptFile, "settings": len(spec.Settings) > 0, "model": spec.Model != "",
		"outputs": len(spec.Outputs) > 0, "mcpServers": len(spec.MCPServers) > 0, "workspace": spec.Workspace.Path != "" && spec.Workspace.Path != "fresh",
	} {
		if asked {
			wrong = append(wrong, name)
		}
	}
	for i, src := range spec.EnvFrom {
		if src.SecretRef == nil {
			return Invalid(fmt.Sprintf("spec.envFrom[%d]", i), "with runner: bare variables of the server would stand in the Pod for everybody to read; put them into a Secret and write secretRef")
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	slices.Sort(wrong)
	return Invalid("spec.runner", "bare has no runner that could hold %s; the deadline is the only limit there", strings.Join(wrong, ", "))
}
