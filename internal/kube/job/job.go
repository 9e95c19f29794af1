package job

import (
	"encoding/json"
	"maps"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tallyman-dev/tallyman"
)

// Cluster is what the objects of all attempts in a cluster have in common.
type Cluster struct {
	Name        string // as it is told to the server, "" when there is only one
	RunnerImage string // holds the runner at /tallyman-runner
	Advertise   string // the server's URL, as Pods reach it
	CA          string // PEM of the authority behind that URL; "": the system's roots
	CAConfigMap string // private roots for agents, under its key ca.crt; "": none
	DefaultTag  string // of an image that names none; "": latest
	OpenShift   bool   // user ids are the cluster's to choose
	Account     string // the Pods' ServiceAccount; "": the namespace's default

	Pull  time.Duration // patience with an image
	Setup time.Duration // from the container's start to the agent's
	Drain time.Duration // for delivering the rest
	Keep  time.Duration // an ended Job, for when no server is there to delete it
}

// margin is added to an attempt's own time before the cluster ends it.
const margin = time.Minute

// Work is an attempt as a cluster needs to know it.
type Work struct {
	Run       tallyman.Run
	Attempt   int
	Spec      tallyman.AgentSpec
	Prompt    string // up to MaxInline
	Bytes     int64  // of the whole prompt
	Namespace string // of its objects
}

// Ref names the attempt.
func (w Work) Ref() tallyman.AttemptRef {
	return tallyman.AttemptRef{RunID: w.Run.ID, Number: w.Attempt}
}

// Job makes an attempt's Job. The error is Invalid with the reason InvalidSpec
// and names the field.
func (c Cluster) Job(w Work) (*batchv1.Job, error) {
	template, err := c.template(w)
	if err != nil {
		return nil, err
	}
	job := &batchv1.Job{
		TypeMeta:   metav1.TypeMeta{APIVersion: "batch/v1", Kind: "Job"},
		ObjectMeta: c.meta(w),
		Spec: batchv1.JobSpec{
			Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(0)),
			PodReplacementPolicy: new(batchv1.Failed),
			Template:             template,
		},
	}
	if c.Keep > 0 {
		job.Spec.TTLSecondsAfterFinished = new(int32(c.Keep / time.Second))
	}
	return job, nil
}

// Pod makes the same attempt's Pod without a Job around it.
func (c Cluster) Pod(w Work) (*corev1.Pod, error) {
	template, err := c.template(w)
	if err != nil {
		return nil, err
	}
	meta := c.meta(w)
	maps.Copy(template.Labels, meta.Labels)
	maps.Copy(template.Annotations, meta.Annotations)
	template.Name, template.Namespace = meta.Name, meta.Namespace
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: template.ObjectMeta,
		Spec:       template.Spec,
	}, nil
}

// Object is what is made for an attempt: its Job, or its Pod.
func (c Cluster) Object(w Work) (client.Object, error) {
	if w.Spec.Workload == tallyman.WorkloadPod {
		pod, err := c.Pod(w)
		if err != nil {
			return nil, err
		}
		return pod, nil
	}
	job, err := c.Job(w)
	if err != nil {
		return nil, err
	}
	return job, nil
}

// Deadline is the deadline of an agent without a runner, 0 without one.
func Deadline(p *corev1.Pod) time.Duration {
	d, err := time.ParseDuration(p.Annotations[AnnotationDeadline])
	if err != nil {
		return 0
	}
	return d
}

// meta is what an attempt's object and its Pod are known by.
func (c Cluster) meta(w Work) metav1.ObjectMeta {
	labels := userLabels(w.Run.Labels)
	labels[LabelManagedBy] = ManagedBy
	labels[LabelRun] = w.Run.ID
	labels[LabelAttempt] = strconv.Itoa(w.Attempt)
	labels[labelAgent] = labelValue(w.Run.Agent)
	labels[LabelRunner] = string(runnerOf(w.Spec))
	if skill := w.Run.Labels[skillLabel]; skill != "" {
		labels[labelSkill] = labelValue(skill)
	}
	notes := map[string]string{annotationRun: w.Run.Name}
	if len(w.Run.Labels) > 0 {
		all, _ := json.Marshal(w.Run.Labels) // strings can always be written
		notes[annotationLabels] = string(all)
	}
	return metav1.ObjectMeta{
		Name: Name(w.Run.Name, w.Attempt), Namespace: w.Namespace,
		Labels: labels, Annotations: notes,
	}
}

// Backstop is how long an ended Job stays where no server deletes it.
const Backstop = 7 * 24 * time.Hour
