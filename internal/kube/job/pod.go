package job

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tallyman-dev/tallyman"
)

// What every Pod of ours has.
const (
	InitContainer = "tallyman-init"
	ours          = "tallyman-" // heads the names of containers and volumes that are ours

	tokenLife    = int64(3600)  // seconds; the kubelet renews it
	uid          = int64(10001) // of containers whose agent does not say
	GraceSeconds = int64(45)    // from TERM to KILL: the runner's own stop order, the final event
)

// template is the Pod of an attempt: the agent's podTemplate, and ours over it.
func (c Cluster) template(w Work) (corev1.PodTemplateSpec, error) {
	user, err := parseTemplate(w.Spec.PodTemplate)
	if err == nil {
		err = checkTemplate(user, w.Spec)
	}
	if err != nil {
		return user, err
	}
	mine, err := c.ours(w, user)
	if err != nil {
		return user, err
	}
	dropVariables(user.Spec.Containers, mine.Spec.Containers[0])
	all, err := merge(user, mine)
	if err != nil {
		return user, err
	}
	harden(&all.Spec, c.OpenShift)
	return all, nil
}

// ours is what we say about an attempt's Pod.
func (c Cluster) ours(w Work, user corev1.PodTemplateSpec) (corev1.PodTemplateSpec, error) {
	var t corev1.PodTemplateSpec
	t.ObjectMeta = c.meta(w)
	t.Name, t.Namespace = "", ""
	if c.CA != "" && w.Spec.Runner != tallyman.RunnerBare {
		t.Annotations[annotationCA] = c.CA
	}
	if limit := w.Spec.Limits.Deadline; limit != nil && *limit > 0 && w.Spec.Runner == tallyman.RunnerBare {
		t.Annotations[AnnotationDeadline] = limit.String()
	}
	agent, err := c.agent(w, user)
	if err != nil {
		return t, err
	}
	t.Spec = corev1.PodSpec{
		RestartPolicy:                 corev1.RestartPolicyNever,
		TerminationGracePeriodSeconds: new(GraceSeconds),
		ActiveDeadlineSeconds:         c.deadline(w.Spec.Limits),
		AutomountServiceAccountToken:  new(false),
		Containers:                    []corev1.Container{agent},
	}
	if user.Spec.ServiceAccountName == "" && user.Spec.DeprecatedServiceAccount == "" {
		t.Spec.ServiceAccountName = c.Account
	}
	if user.Spec.EnableServiceLinks == nil {
		t.Spec.EnableServiceLinks = new(false)
	}
	t.Spec.Volumes = c.volumes(w.Spec)
	if runnerOf(w.Spec) == tallyman.RunnerInject {
		if c.RunnerImage == "" {
			return t, Invalid("spec.runner", "inject needs the image that holds the runner; the server has none: start it with --runner-image, or write image or bare")
		}
		t.Spec.InitContainers = []corev1.Container{{
			Name: InitContainer, Image: c.tagged(c.RunnerImage), ImagePullPolicy: corev1.PullIfNotPresent,
			Command:      []string{tallyman.PodRunner, "install", tallyman.PodInstall},
			VolumeMounts: []corev1.VolumeMount{{Name: ours + "runner", MountPath: tallyman.PodInstall}},
			Resources:    small,
		}}
	}
	return t, nil
}

// agent is the container of the agent.
func (c Cluster) agent(w Work, user corev1.PodTemplateSpec) (corev1.Container, error) {
	spec := w.Spec
	given := containerOf(user)
	a := corev1.Container{Name: tallyman.PodAgent, Image: c.tagged(spec.Image)}
	if spec.Image == "" {
		a.Image = c.tagged(given.Image)
	}
	if a.Image == "" && spec.Harness == "script" && runnerOf(spec) != tallyman.RunnerBare {
		a.Image = c.tagged(c.RunnerImage) // it needs nothing but the runner
	}
	if a.Image == "" {
		return a, Invalid("spec.image", "is missing: an attempt in a cluster needs an image, which built-in agents but demo have not; write it in an agent file")
	}
	if given.ImagePullPolicy == "" {
		a.ImagePullPolicy = corev1.PullIfNotPresent
	}
	a.EnvFrom = slices.Clone(given.EnvFrom) // merging would replace them by ours
	for i, src := range spec.EnvFrom {
		if src.SecretRef != nil {
			addSecret(&a, i, src, spec.Runner != tallyman.RunnerBare)
		}
	}
	a.VolumeMounts = append(a.VolumeMounts, c.rootsMount()...)
	if spec.Runner == tallyman.RunnerBare {
		return c.bare(w, a)
	}
	if spec.Harness == "exec" && len(spec.Command) == 0 {
		return a, Invalid("spec.command", "is missing: what an image would run by itself cannot be looked up, so runner: %s needs the command line; with runner: bare the image's own is run", runnerOf(spec))
	}
	program := path.Join(tallyman.PodRunnerDir, "tallyman-runner")
	if spec.Runner == tallyman.RunnerImage {
		program = tallyman.PodRunner
	} else {
		a.VolumeMounts = append(a.VolumeMounts, corev1.VolumeMount{Name: ours + "runner", MountPath: tallyman.PodRunnerDir, ReadOnly: true})
	}
	if c.Advertise == "" {
		return a, Invalid("spec.runner", "a runner needs a server that it can reach, and this one does not know where Pods reach it: start it with --advertise, or write bare")
	}
	a.Command = []string{program, "pod", "--attempt", w.Ref().String(), "--server", c.Advertise}
	if c.Name != "" {
		a.Command = append(a.Command, "--cluster", c.Name)
	}
	a.VolumeMounts = append(a.VolumeMounts,
		corev1.VolumeMount{Name: ours + "channel", MountPath: tallyman.PodChannel, ReadOnly: true},
		corev1.VolumeMount{Name: ours + "state", MountPath: tallyman.PodState},
		corev1.VolumeMount{Name: ours + "home", MountPath: tallyman.PodHome},
		corev1.VolumeMount{Name: ours + "tmp", MountPath: tallyman.PodTmp},
		corev1.VolumeMount{Name: ours + "workspace", MountPath: tallyman.PodWork},
	)
	return a, nil
}

// addSecret gives the container a Secret's values as variables, and as files
// that tell the runner which of its variables they are. The files are
// optional: a missing Secret is told at once by the variables.
func addSecret(a *corev1.Container, i int, src tallyman.EnvSource, masked bool) {
	ref := corev1.LocalObjectReference{Name: src.SecretRef.Name}
	var optional *bool
	if src.Optional {
		optional = new(true)
	}
	if key := src.SecretRef.Key; key != "" {
		a.Env = append(a.Env, corev1.EnvVar{Name: key, ValueFrom: &corev1.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: ref, Key: key, Optional: optional},
		}})
	} else {
		a.EnvFrom = append(a.EnvFrom, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref, Optional: optional}})
	}
	if masked && (src.Mask == nil || *src.Mask) {
		n := strconv.Itoa(i)
		a.VolumeMounts = append(a.VolumeMounts, corev1.VolumeMount{Name: ours + "secret-" + n, MountPath: path.Join(tallyman.PodSecrets, n), ReadOnly: true})
	}
}

// volumes are those that our mounts name.
func (c Cluster) volumes(spec tallyman.AgentSpec) []corev1.Volume {
	var all []corev1.Volume
	add := func(name string, source corev1.VolumeSource) {
		all = append(all, corev1.Volume{Name: ours + name, VolumeSource: source})
	}
	for i, src := range spec.EnvFrom {
		if src.SecretRef == nil || src.Mask != nil && !*src.Mask || spec.Runner == tallyman.RunnerBare {
			continue
		}
		s := &corev1.SecretVolumeSource{SecretName: src.SecretRef.Name, Optional: new(true)}
		if key := src.SecretRef.Key; key != "" {
			s.Items = []corev1.KeyToPath{{Key: key, Path: key}}
		}
		add("secret-"+strconv.Itoa(i), corev1.VolumeSource{Secret: s})
	}
	if c.CAConfigMap != "" {
		add("roots", corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: c.CAConfigMap},
			Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
		}})
	}
	if spec.Runner == tallyman.RunnerBare {
		return all
	}
	channel := []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{
		Audience: tallyman.TokenAudience, ExpirationSeconds: new(tokenLife), Path: "token",
	}}}
	if c.CA != "" {
		channel = append(channel, corev1.VolumeProjection{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
			Path: "ca.crt", FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.annotations['%s']", annotationCA)},
		}}}})
	}
	add("channel", corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: channel}})
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	if spec.Runner != tallyman.RunnerImage {
		add("runner", empty)
	}
	for _, name := range []string{"state", "home", "tmp", "workspace"} {
		add(name, empty)
	}
	return all
}

func (c Cluster) rootsMount() []corev1.VolumeMount {
	if c.CAConfigMap == "" {
		return nil
	}
	return []corev1.VolumeMount{{Name: ours + "roots", MountPath: tallyman.PodRoots, ReadOnly: true}}
}

// deadline is when the cluster ends a Pod that nobody else has ended, nil for
// an attempt without a deadline: from the Pod's start, so everything that may
// take time is in it.
func (c Cluster) deadline(l tallyman.Limits) *int64 {
	if l.Deadline == nil || *l.Deadline == 0 {
		return nil
	}
	all := l.Deadline.D() + c.Pull + c.Setup + c.Drain + time.Duration(GraceSeconds)*time.Second + margin
	return new(int64((all + time.Second - 1) / time.Second))
}

// tagged is an image with a tag: a tag or digest after the last slash stays.
func (c Cluster) tagged(image string) string {
	last := image[strings.LastIndexByte(image, '/')+1:]
	if image == "" || c.DefaultTag == "" || strings.ContainsAny(last, ":@") {
		return image
	}
	return image + ":" + c.DefaultTag
}

func quantities(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// What a container asks for, and may take, whose agent does not say.
var (
	small    = corev1.ResourceRequirements{Requests: quantities("10m", "16Mi"), Limits: quantities("500m", "64Mi")}
	standard = corev1.ResourceRequirements{Requests: quantities("250m", "512Mi"), Limits: quantities("2", "4Gi")}
)

func Invalid(field, format string, args ...any) error {
	return &tallyman.Error{Code: tallyman.Invalid, Reason: tallyman.InvalidSpec, Message: field + ": " + fmt.Sprintf(format, args...)}
}

// runnerOf is how the runner comes into the container.
func runnerOf(spec tallyman.AgentSpec) tallyman.RunnerMode {
	if spec.Runner == "" {
		return tallyman.RunnerInject
	}
	return spec.Runner
}
