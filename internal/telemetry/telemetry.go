// Package telemetry shows a server's health and figures: /healthz, /readyz
// and Prometheus metrics at /metrics.
package telemetry

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tallyman-dev/tallyman"
)

// Sources are what figures are read from, when they are asked for.
type Sources struct {
	Counts     func(ctx context.Context) (map[string]map[tallyman.State]int, error)     // by namespace
	Load       func(ctx context.Context) (total int, byAgent map[string]int, err error) // by tallyman.AgentKey
	Queue      func(ctx context.Context, perAgent int) ([]tallyman.Run, error)
	Ready      func(ctx context.Context) error
	Version    string
	MaxRunning int
}

// Metrics counts what happens while this process serves.
type Metrics struct {
	registry *prometheus.Registry
	ended    *prometheus.CounterVec
	tokens   *prometheus.CounterVec
	cost     *prometheus.CounterVec
	waited   prometheus.Histogram
	worked   prometheus.Histogram
}

// New makes metrics at zero.
func New() *Metrics {
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallyman_runs_ended_total", Help: "Runs that have ended since the server began, by namespace, agent, state and reason.",
		}, []string{"namespace", "agent", "state", "reason"}),
		tokens: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallyman_tokens_total", Help: "Tokens of ended runs since the server began, by namespace, agent and kind, as reported by the agents.",
		}, []string{"namespace", "agent", "kind"}),
		cost: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tallyman_cost_usd_total", Help: "US dollars of ended runs since the server began, by namespace, agent and source of the figure.",
		}, []string{"namespace", "agent", "source"}),
		waited: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tallyman_start_seconds", Help: "From submit to the agent's first start.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 10),
		}),
		worked: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tallyman_run_seconds", Help: "From the agent's first start to the run's end.", Buckets: prometheus.ExponentialBuckets(0.1, 4, 10),
		}),
	}
	m.registry.MustRegister(m.ended, m.tokens, m.cost, m.waited, m.worked, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Ended counts a run that has ended.
func (m *Metrics) Ended(r tallyman.Run) {
	m.ended.WithLabelValues(r.Namespace, r.Agent, string(r.State), string(r.Reason)).Inc()
	for kind, n := range map[string]int64{
		"input": r.Usage.InputTokens, "output": r.Usage.OutputTokens,
		"cache_read": r.Usage.CacheReadTokens, "cache_write": r.Usage.CacheWriteTokens,
	} {
		if n > 0 {
			m.tokens.WithLabelValues(r.Namespace, r.Agent, kind).Add(float64(n))
		}
	}
	if r.Usage.CostUSD > 0 {
		m.cost.WithLabelValues(r.Namespace, r.Agent, string(r.Usage.CostSource)).Add(r.Usage.CostUSD)
	}
	if r.StartedAt == nil {
		return
	}
	m.waited.Observe(r.StartedAt.Sub(r.CreatedAt).Seconds())
	if r.EndedAt != nil {
		m.worked.Observe(r.EndedAt.Sub(*r.StartedAt).Seconds())
	}
}

// Routes adds health and metrics to a mux.
func (m *Metrics) Routes(mux *http.ServeMux, s Sources) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte("ok\n")) // a caller that has gone reads nothing
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.Ready(r.Context()); err != nil {
			http.Error(w, "not ready: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ready\n"))
	})
	m.registry.MustRegister(&collector{s})
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
}

var (
	runs    = prometheus.NewDesc("tallyman_runs", "Runs that are kept, by namespace and state.", []string{"namespace", "state"}, nil)
	slots   = prometheus.NewDesc("tallyman_slots_taken", "Attempts whose slot is taken, by namespace and agent.", []string{"namespace", "agent"}, nil)
	limit   = prometheus.NewDesc("tallyman_slots", "How many attempts may run at once.", nil, nil)
	waiting = prometheus.NewDesc("tallyman_runs_waiting", "Queued runs that wait, by what holds them back; at most 50 of each agent and source are looked at.", []string{"reason"}, nil)
	oldest  = prometheus.NewDesc("tallyman_queue_oldest_seconds", "How long the longest waiting of them has waited.", nil, nil)
	build   = prometheus.NewDesc("tallyman_build_info", "The version, as a label.", []string{"version"}, nil)
)

// collector reads its figures when it is scraped: what is kept is the truth.
type collector struct{ s Sources }

// Describe names the metrics.
func (c *collector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{runs, slots, limit, waiting, oldest, build} {
		out <- d
	}
}

// Collect reads the metrics. What cannot be read is told as invalid.
func (c *collector) Collect(out chan<- prometheus.Metric) {
	ctx := context.Background()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	gauge(build, 1, c.s.Version)
	gauge(limit, float64(c.s.MaxRunning))
	if counts, err := c.s.Counts(ctx); err != nil {
		out <- prometheus.NewInvalidMetric(runs, err)
	} else {
		if counts[tallyman.DefaultNamespace] == nil { // a figure that is missing alerts nobody
			gaugeStates(gauge, tallyman.DefaultNamespace, nil)
		}
		for namespace, byState := range counts {
			gaugeStates(gauge, namespace, byState)
		}
	}
	if _, byAgent, err := c.s.Load(ctx); err != nil {
		out <- prometheus.NewInvalidMetric(slots, err)
	} else {
		for key, n := range byAgent {
			namespace, agent, _ := strings.Cut(key, "/")
			gauge(slots, float64(n), namespace, agent)
		}
	}
	queue, err := c.s.Queue(ctx, 50)
	if err != nil {
		out <- prometheus.NewInvalidMetric(waiting, err)
		return
	}
	reasons, longest := map[tallyman.WaitReason]int{}, time.Duration(0)
	for _, r := range queue {
		longest = max(longest, time.Since(r.CreatedAt))
		if r.Waiting != nil {
			reasons[r.Waiting.Reason]++
		}
	}
	for reason, n := range reasons {
		gauge(waiting, float64(n), string(reason))
	}
	gauge(oldest, longest.Seconds())
}

func gaugeStates(gauge func(d *prometheus.Desc, v float64, labels ...string), namespace string, n map[tallyman.State]int) {
	for _, state := range tallyman.States {
		gauge(runs, float64(n[state]), namespace, string(state))
	}
}
