package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/tallyman-dev/tallyman"
)

// parseTemplate reads an agent's podTemplate. None is an empty one.
func parseTemplate(raw json.RawMessage) (corev1.PodTemplateSpec, error) {
	var t corev1.PodTemplateSpec
	if len(raw) == 0 {
		return t, nil
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(&t); err != nil {
		return t, Invalid("spec.podTemplate", "%s", strings.TrimPrefix(err.Error(), "json: "))
	}
	return t, nil
}

// containerOf is the agent's container in a template, an empty one where the
// template says nothing about it.
func containerOf(t corev1.PodTemplateSpec) corev1.Container {
	for _, c := range t.Spec.Containers {
		if c.Name == tallyman.PodAgent {
			return c
		}
	}
	return corev1.Container{}
}

// dropVariables takes those of the agent's variables out of a template that
// ours name too: merged, one variable could have two values.
func dropVariables(user []corev1.Container, mine corev1.Container) {
	for i := range user {
		if user[i].Name == mine.Name {
			user[i].Env = slices.DeleteFunc(user[i].Env, func(v corev1.EnvVar) bool {
				return slices.ContainsFunc(mine.Env, func(m corev1.EnvVar) bool { return m.Name == v.Name })
			})
		}
	}
}

// merge lays ours over the agent's template.
func merge(user, mine corev1.PodTemplateSpec) (all corev1.PodTemplateSpec, err error) {
	base, err := json.Marshal(user)
	if err != nil {
		return all, fmt.Errorf("encode the podTemplate: %w", err)
	}
	patch, err := json.Marshal(mine)
	if err != nil {
		return all, fmt.Errorf("encode our part of the Pod: %w", err)
	}
	merged, err := strategicpatch.StrategicMergePatch(base, patch, corev1.PodTemplateSpec{})
	if err != nil {
		return all, Invalid("spec.podTemplate", "it cannot be merged: %v", err)
	}
	if err := json.Unmarshal(merged, &all); err != nil {
		return all, fmt.Errorf("decode the merged Pod: %w", err)
	}
	return all, nil
}

// selecting are the labels by which a server's own Pods are found: its Service
// would send its users' tokens to whoever else has them.
var selecting = []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/component"}

// checkTemplate refuses what would undo our security or our container.
func checkTemplate(t corev1.PodTemplateSpec, spec tallyman.AgentSpec) error {
	const at = "spec.podTemplate."
	for _, m := range []struct {
		field string
		keys  map[string]string
	}{{"metadata.labels", t.Labels}, {"metadata.annotations", t.Annotations}} {
		for _, key := range slices.Sorted(maps.Keys(m.keys)) { // the same reason each time
			switch {
			case strings.HasPrefix(key, prefix), key == LabelManagedBy:
				return Invalid(at+m.field, "%s is ours to set", key)
			case key == "job-name", key == "controller-uid", strings.HasPrefix(key, "batch.kubernetes.io/"):
				return Invalid(at+m.field, "%s is the cluster's to set", key)
			case slices.Contains(selecting, key):
				return Invalid(at+m.field, "%s would make the Pod look like one of the server's; write another key", key)
			case strings.HasPrefix(key, "container.apparmor.security.beta.kubernetes.io/"):
				return Invalid(at+m.field, "%s: write securityContext.appArmorProfile", key)
			}
		}
	}
	rest := t.ObjectMeta
	if rest.Labels, rest.Annotations = nil, nil; !reflect.ValueOf(rest).IsZero() {
		return Invalid(at+"metadata", "the name, the namespace, finalizers, ownerReferences and all else are ours to set; labels and annotations are yours")
	}
	if err := checkPod(at+"spec.", t.Spec); err != nil {
		return err
	}
	for _, l := range []struct {
		field      string
		containers []corev1.Container
	}{{"initContainers", t.Spec.InitContainers}, {"containers", t.Spec.Containers}} {
		for _, c := range l.containers {
			name := fmt.Sprintf("%sspec.%s[%s].", at, l.field, c.Name)
			if err := checkContainer(name, c); err != nil {
				return err
			}
			sidecar := l.field == "initContainers" && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
			if c.RestartPolicy != nil && !sidecar || len(c.RestartPolicyRules) > 0 {
				return Invalid(name+"restartPolicy", "a container is run once; what is tried again says spec.retry")
			}
		}
	}
	return checkAgent(fmt.Sprintf("%sspec.containers[%s].", at, tallyman.PodAgent), containerOf(t), spec)
}

func checkPod(at string, p corev1.PodSpec) error {
	switch {
	case p.HostNetwork:
		return Invalid(at+"hostNetwork", "an agent does not get the node's network")
	case p.HostPID:
		return Invalid(at+"hostPID", "an agent does not see the node's processes")
	case p.HostIPC:
		return Invalid(at+"hostIPC", "an agent does not get the node's shared memory")
	case p.ShareProcessNamespace != nil && *p.ShareProcessNamespace:
		return Invalid(at+"shareProcessNamespace", "other containers would see the agent's processes, and the runner would not be the first")
	case p.AutomountServiceAccountToken != nil && *p.AutomountServiceAccountToken:
		return Invalid(at+"automountServiceAccountToken", "an agent gets no token by itself; mount a projected one, with its own audience")
	case p.RestartPolicy != "" && p.RestartPolicy != corev1.RestartPolicyNever:
		return Invalid(at+"restartPolicy", "%s would run the agent twice; what is tried again says spec.retry", p.RestartPolicy)
	case p.ActiveDeadlineSeconds != nil:
		return Invalid(at+"activeDeadlineSeconds", "write spec.limits.deadline: it ends the agent and keeps its record")
	case p.TerminationGracePeriodSeconds != nil:
		return Invalid(at+"terminationGracePeriodSeconds", "the runner needs its own %d seconds to end an agent and to say how", GraceSeconds)
	}
	for _, v := range p.Volumes {
		if err := checkVolume(fmt.Sprintf("%svolumes[%s]", at, v.Name), v); err != nil {
			return err
		}
	}
	s := p.SecurityContext
	if s == nil {
		return nil
	}
	at += "securityContext."
	if err := checkUser(at, s.RunAsNonRoot, s.RunAsUser); err != nil {
		return err
	}
	if len(s.Sysctls) > 0 {
		return Invalid(at+"sysctls", "an agent does not set the kernel's")
	}
	return checkProfiles(at, s.SeccompProfile, s.AppArmorProfile, s.SELinuxOptions)
}

func checkVolume(at string, v corev1.Volume) error {
	if strings.HasPrefix(v.Name, ours) {
		return Invalid(at, "names in %s are ours", ours)
	}
	if v.HostPath != nil {
		return Invalid(at+".hostPath", "an agent does not get the node's files; use a PersistentVolumeClaim")
	}
	if v.Projected == nil {
		return nil
	}
	for _, source := range v.Projected.Sources {
		if t := source.ServiceAccountToken; t != nil && t.Audience == tallyman.TokenAudience {
			return Invalid(at+".projected", "a token with the audience %s is for the runner alone; write another audience", t.Audience)
		}
	}
	return nil
}

// checkProfiles refuses what would let a container out of the node's rules.
func checkProfiles(at string, seccomp *corev1.SeccompProfile, armor *corev1.AppArmorProfile, selinux *corev1.SELinuxOptions) error {
	const instead = "Unconfined is not for agents; leave it out for RuntimeDefault, or name a Localhost profile"
	switch {
	case seccomp != nil && seccomp.Type == corev1.SeccompProfileTypeUnconfined:
		return Invalid(at+"seccompProfile", instead)
	case armor != nil && armor.Type == corev1.AppArmorProfileTypeUnconfined:
		return Invalid(at+"appArmorProfile", instead)
	case selinux != nil && (selinux.Type != "" || selinux.User != "" || selinux.Role != ""):
		return Invalid(at+"seLinuxOptions", "an agent has the node's usual type; only level may be chosen")
	}
	return nil
}

func checkUser(at string, nonRoot *bool, user *int64) error {
	if nonRoot != nil && !*nonRoot {
		return Invalid(at+"runAsNonRoot", "an agent does not run as root")
	}
	if user != nil && *user == 0 {
		return Invalid(at+"runAsUser", "an agent does not run as root; write another user id")
	}
	return nil
}

func checkContainer(at string, c corev1.Container) error {
	if strings.HasPrefix(c.Name, ours) {
		return Invalid(strings.TrimSuffix(at, "."), "names in %s are ours", ours)
	}
	for _, m := range c.VolumeMounts {
		m.MountPath = mountedAt(m)
		if m.MountPath == "/" {
			return Invalid(at+"volumeMounts", "%s would hide the image's own files; mount below it", m.MountPath)
		}
		for _, dir := range []string{tallyman.PodRunner, tallyman.PodRunnerDir, tallyman.PodInstall, tallyman.PodState, tallyman.PodChannel, tallyman.PodSecrets, tallyman.PodRoots} {
			if m.MountPath == dir || strings.HasPrefix(m.MountPath, dir+"/") {
				return Invalid(at+"volumeMounts", "%s is where the runner lives; mount elsewhere", m.MountPath)
			}
		}
		if m.Name == ours+"runner" || strings.HasPrefix(m.Name, ours+"channel") || strings.HasPrefix(m.Name, ours+"state") || strings.HasPrefix(m.Name, ours+"secret-") {
			return Invalid(at+"volumeMounts", "the volume %s is for the runner alone", m.Name)
		}
	}
	for _, p := range c.Ports {
		if p.HostPort != 0 || p.HostIP != "" {
			return Invalid(at+"ports", "an agent does not get the node's network: leave hostPort and hostIP out")
		}
	}
	s := c.SecurityContext
	if s == nil {
		return nil
	}
	at += "securityContext."
	switch {
	case s.Privileged != nil && *s.Privileged:
		return Invalid(at+"privileged", "an agent does not get the node")
	case s.AllowPrivilegeEscalation != nil && *s.AllowPrivilegeEscalation:
		return Invalid(at+"allowPrivilegeEscalation", "an agent does not get more rights than it was started with")
	case s.ProcMount != nil && *s.ProcMount != corev1.DefaultProcMount:
		return Invalid(at+"procMount", "%s would show the node's kernel; leave it out", *s.ProcMount)
	case s.Capabilities != nil && len(s.Capabilities.Add) > 0:
		return Invalid(at+"capabilities.add", "an agent gets no capabilities, %s neither", s.Capabilities.Add[0])
	}
	if err := checkProfiles(at, s.SeccompProfile, s.AppArmorProfile, s.SELinuxOptions); err != nil {
		return err
	}
	return checkUser(at, s.RunAsNonRoot, s.RunAsUser)
}

// mountedAt is where a volume is mounted, however that is written: to a kubelet
// a path without a slash begins at the root.
func mountedAt(m corev1.VolumeMount) string { return path.Clean("/" + m.MountPath) }

// checkAgent refuses what is ours in the agent's own container.
func checkAgent(at string, c corev1.Container, spec tallyman.AgentSpec) error {
	if c.TerminationMessagePath != "" {
		return Invalid(at+"terminationMessagePath", "the runner's last word is written where a cluster looks for it")
	}
	if c.Image != "" && spec.Image != "" && c.Image != spec.Image {
		return Invalid(at+"image", "spec.image is another; write one of them")
	}
	if err := checkVariables(at+"env", c.Env, spec.EnvFrom); err != nil {
		return err
	}
	if spec.Runner == tallyman.RunnerBare {
		if len(spec.Command) > 0 && len(c.Command) > 0 {
			return Invalid(at+"command", "spec.command is another; write one of them")
		}
		return nil
	}
	switch {
	case c.TerminationMessagePolicy != "" && c.TerminationMessagePolicy != corev1.TerminationMessageReadFile:
		return Invalid(at+"terminationMessagePolicy", "the runner's last word is in the file; what the agent has printed is not taken for it")
	case c.Lifecycle != nil:
		return Invalid(at+"lifecycle", "its hooks would run beside the runner and take the time that it needs to end the agent; make them part of spec.command")
	case c.LivenessProbe != nil, c.StartupProbe != nil:
		return Invalid(at+"livenessProbe and startupProbe", "they would kill the runner; an agent that hangs is ended by spec.limits.idle and spec.limits.deadline")
	case c.WorkingDir != "":
		return Invalid(at+"workingDir", "write it as spec.workspace.path: the runner starts the agent there")
	case len(c.Command) > 0:
		return Invalid(at+"command", "the runner is the first process of this container; the agent's command is spec.command")
	case len(c.Args) > 0:
		return Invalid(at+"args", "the runner is the first process of this container; the agent's command is spec.command")
	}
	for _, m := range c.VolumeMounts {
		if p := mountedAt(m); p == tallyman.PodHome || p == tallyman.PodTmp || p == tallyman.PodWork {
			return Invalid(at+"volumeMounts", "%s is the attempt's own, and empty when it starts; mount elsewhere, and name that path as spec.workspace to work there", m.MountPath)
		}
	}
	return nil
}

// checkVariables refuses variables that could not stand beside ours. Those of
// spec.env, and of a request, go before a template's.
func checkVariables(at string, env []corev1.EnvVar, sources []tallyman.EnvSource) error {
	for _, v := range env {
		if strings.HasPrefix(v.Name, "TALLYMAN_") {
			return Invalid(at, "%s is ours to set", v.Name)
		}
		if slices.ContainsFunc(sources, func(s tallyman.EnvSource) bool { return s.SecretRef != nil && s.SecretRef.Key == v.Name }) {
			return Invalid(at, "%s is in spec.envFrom too; write it once", v.Name)
		}
	}
	return nil
}

// harden says for each container what is not said: no rights beyond those of
// its user, and how much it may take.
func harden(p *corev1.PodSpec, openShift bool) {
	if p.SecurityContext == nil {
		p.SecurityContext = &corev1.PodSecurityContext{}
	}
	s := p.SecurityContext
	s.RunAsNonRoot = new(true)
	if s.SeccompProfile == nil {
		s.SeccompProfile = &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}
	}
	if !openShift {
		for _, id := range []**int64{&s.RunAsUser, &s.RunAsGroup, &s.FSGroup} {
			if *id == nil {
				*id = new(uid)
			}
		}
	}
	for _, list := range [][]corev1.Container{p.InitContainers, p.Containers} {
		for i := range list {
			hardenContainer(&list[i])
		}
	}
}

func hardenContainer(c *corev1.Container) {
	if c.SecurityContext == nil {
		c.SecurityContext = &corev1.SecurityContext{}
	}
	c.SecurityContext.AllowPrivilegeEscalation = new(false)
	c.SecurityContext.Capabilities = &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}
	r := &c.Resources
	if r.Limits == nil {
		r.Limits = corev1.ResourceList{}
	}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	for name, most := range standard.Limits {
		if _, given := r.Limits[name]; given {
			continue
		}
		// A request above our limit says how much is needed at least.
		if asked, given := r.Requests[name]; given && asked.Cmp(most) > 0 {
			most = asked
		}
		r.Limits[name] = most
	}
	for name, least := range standard.Requests {
		if _, given := r.Requests[name]; given {
			continue
		}
		if most := r.Limits[name]; most.Cmp(least) < 0 {
			least = most
		}
		r.Requests[name] = least
	}
}
