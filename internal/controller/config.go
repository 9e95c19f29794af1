package controller

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tallyman-dev/tallyman"
	"github.com/tallyman-dev/tallyman/internal/catalog"
)

// configSpec is what we read of a resource of the kind Config: an agent of the
// task executor that came before. Its image is run as it is.
type configSpec struct {
	Assignee  string   `json:"assignee"`
	Image     string   `json:"image"`
	Type      string   `json:"type"`
	TaskType  string   `json:"taskType"`
	TaskTypes []string `json:"taskTypes"`
	Resources struct {
		Requests map[string]string `json:"requests"`
		Limits   map[string]string `json:"limits"`
	} `json:"resources"`
	Env                     map[string]string `json:"env"`
	SecretName              string            `json:"secretName"`
	VolumeClaim             string            `json:"volumeClaim"`
	VolumeMountPath         string            `json:"volumeMountPath"`
	ConfigMapName           string            `json:"configMapName"`
	ConfigMapMountPath      string            `json:"configMapMountPath"`
	ConfigMapItems          []configItem      `json:"configMapItems"`
	PriorityClassName       string            `json:"priorityClassName"`
	ImagePullSecret         string            `json:"imagePullSecret"`
	MaxConcurrentJobs       int               `json:"maxConcurrentJobs"`
	ZombieJobTimeoutSeconds int64             `json:"zombieJobTimeoutSeconds"`
}

type configItem struct {
	Key  string `json:"key"`
	Path string `json:"path"`
}

// What a Config has that does not say otherwise.
const (
	configTimeout    = 1800 // seconds
	configPullSecret = "docker"
)

// readConfig reads a resource of the kind Config as an agent without a runner.
func readConfig(k key, u *unstructured.Unstructured) catalog.Resource {
	b, err := json.Marshal(u.Object["spec"])
	var s configSpec
	if err == nil {
		err = json.Unmarshal(b, &s)
	}
	r := catalog.Resource{Origin: k.origin(), Agent: tallyman.Agent{Name: k.name, Namespace: k.namespace, Description: s.about()}}
	if err == nil {
		r.Agent.Spec, err = s.agent()
	}
	if err != nil {
		r = faulty(k, fmt.Errorf("%s: %w", k.origin(), err))
	}
	r.After = true // an Agent of the same name has taken its place
	return catalog.CheckResource(r)
}

// about says whose work the agent does.
func (s configSpec) about() string {
	if s.Assignee == "" {
		return ""
	}
	tasks := s.TaskTypes
	if s.TaskType != "" && !slices.Contains(tasks, s.TaskType) {
		tasks = append([]string{s.TaskType}, tasks...)
	}
	if len(tasks) == 0 {
		return "assignee " + s.Assignee
	}
	return "assignee " + s.Assignee + ", tasks " + strings.Join(tasks, ", ")
}

// agent is the agent that a Config describes.
func (s configSpec) agent() (a tallyman.AgentSpec, err error) {
	switch {
	case s.Type != "" && s.Type != "job":
		return a, fmt.Errorf("spec.type: %s agents are not run here; only those of type job are", s.Type)
	case s.Image == "":
		return a, fmt.Errorf("spec.image: is missing")
	case s.MaxConcurrentJobs < 0:
		return a, fmt.Errorf("spec.maxConcurrentJobs: %d is negative; 0 means no cap", s.MaxConcurrentJobs)
	case s.ZombieJobTimeoutSeconds < 0:
		return a, fmt.Errorf("spec.zombieJobTimeoutSeconds: %d is negative", s.ZombieJobTimeoutSeconds)
	}
	deadline := tallyman.Duration(time.Duration(cmp.Or(s.ZombieJobTimeoutSeconds, configTimeout)) * time.Second)
	a = tallyman.AgentSpec{
		Harness: "exec", Runner: tallyman.RunnerBare, Image: s.Image,
		Limits: tallyman.Limits{Deadline: &deadline},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Env)) {
		a.Env = append(a.Env, tallyman.EnvVar{Name: name, Value: s.Env[name]})
	}
	if s.SecretName != "" {
		a.EnvFrom = []tallyman.EnvSource{{SecretRef: &tallyman.SecretRef{Name: s.SecretName}}}
	}
	if s.MaxConcurrentJobs > 0 {
		a.Concurrency.Max = &s.MaxConcurrentJobs
	}
	t, err := s.template()
	if err != nil {
		return a, err
	}
	a.PodTemplate, err = json.Marshal(t)
	return a, err
}

// template is what a Config says of its Pod. The tag of its image moves, so
// the image is pulled each time.
func (s configSpec) template() (t corev1.PodTemplateSpec, err error) {
	c := corev1.Container{Name: tallyman.PodAgent, ImagePullPolicy: corev1.PullAlways}
	if c.Resources.Requests, err = quantities("spec.resources.requests", s.Resources.Requests); err != nil {
		return t, err
	}
	if c.Resources.Limits, err = quantities("spec.resources.limits", s.Resources.Limits); err != nil {
		return t, err
	}
	if s.VolumeClaim != "" {
		if !path.IsAbs(s.VolumeMountPath) {
			return t, fmt.Errorf("spec.volumeMountPath: %q is no absolute path to mount the claim %s at", s.VolumeMountPath, s.VolumeClaim)
		}
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "agent-data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: s.VolumeClaim},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "agent-data", MountPath: s.VolumeMountPath})
	}
	if s.ConfigMapName != "" {
		if !path.IsAbs(s.ConfigMapMountPath) {
			return t, fmt.Errorf("spec.configMapMountPath: %q is no absolute path to mount the ConfigMap %s at", s.ConfigMapMountPath, s.ConfigMapName)
		}
		source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: s.ConfigMapName}}
		for _, item := range s.ConfigMapItems {
			source.Items = append(source.Items, corev1.KeyToPath{Key: item.Key, Path: item.Path})
		}
		t.Spec.Volumes = append(t.Spec.Volumes, corev1.Volume{Name: "agent-config", VolumeSource: corev1.VolumeSource{ConfigMap: source}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "agent-config", MountPath: s.ConfigMapMountPath})
	}
	t.Spec.PriorityClassName = s.PriorityClassName
	t.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: cmp.Or(s.ImagePullSecret, configPullSecret)}}
	t.Spec.Containers = []corev1.Container{c}
	return t, nil
}

func quantities(at string, given map[string]string) (corev1.ResourceList, error) {
	list := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] == "" {
			continue
		}
		q, err := resource.ParseQuantity(given[name])
		if err != nil {
			return nil, fmt.Errorf("%s.%s: %q is no quantity: %w", at, name, given[name], err)
		}
		list[corev1.ResourceName(name)] = q
	}
	return list, nil
}
