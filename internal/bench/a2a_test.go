package bench

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

const (
	inA2AREST = "A2A, HTTP+JSON"
	inA2ARPC  = "A2A, JSON-RPC"
)

// BenchmarkA2A measures SendMessage of A2A with returnImmediately, over both bindings, against the
// same work as a work_request in an envelope: the task is durable and assigned before the response,
// while workers answer it. The difference of the medians has an aim.
func BenchmarkA2A(b *testing.B) {
	var times []latencies
	var added []figure
	eachDatabase(b, func(b *testing.B, database string) {
		comet := startComet(b, newStorage(b, database), nil)
		answered, sent := startEnvelopeWorkers(b, comet), new(atomic.Int64)
		for _, callers := range []int{1, 16} {
			m := measurement{what: database, open: func(b *testing.B) []*subject {
				b.Helper()
				send := func(name, path, format, want string) *subject {
					return timedAccepted(b, name, comet.addr, callers, answered, sent, http.StatusOK, want, func() []byte {
						return post(path, adminToken, fmt.Appendf(nil, format, sendMessage()))
					})
				}
				return []*subject{
					timedAccepted(b, inEnvelopes, comet.addr, callers, answered, sent, http.StatusAccepted, `"task_id"`, func() []byte {
						return post("/api/agent/message", adminToken, workRequest(uuid.New()))
					}),
					send(inA2AREST, "/a2a/rest/message:send?A2A-Version=1.0", "%s", `"TASK_STATE_`),
					send(inA2ARPC, "/a2a?A2A-Version=1.0", `{"jsonrpc":"2.0","id":1,"method":"SendMessage","params":%s}`, `"TASK_STATE_`),
				}
			}}
			b.Run(fmt.Sprint(callers), func(b *testing.B) {
				m.also = func(r rates) {
					for _, name := range []string{inEnvelopes, inA2AREST, inA2ARPC} {
						times = append(times, latencies{what: database, subject: name, callers: callers, rate: r.rate(name), median: r.latency(name, .5), high: r.latency(name, .99), cpu: r.cpu(name)})
					}
					for i, name := range []string{inA2AREST, inA2ARPC} {
						f := figure{what: fmt.Sprintf("%s, %d callers, %s", database, callers, name), value: r.latency(name, .5) - r.latency(inEnvelopes, .5), unit: "ms", most: 2}
						b.ReportMetric(f.value, []string{"rest_added_p50_ms", "rpc_added_p50_ms"}[i])
						added = append(added, f)
					}
				}
				m.run(b)
			})
		}
	})
	printLatencies(os.Stdout, "Callers do not wait for results. "+durability(b), times)
	printFigures(os.Stdout, "What SendMessage adds to the median of an envelope.", added)
}

// sendMessage returns the parameters of a SendMessage with the work of workRequest.
func sendMessage() []byte {
	return fmt.Appendf(nil, `{"message":{"messageId":"%s","role":"ROLE_USER","parts":[{"data":{"playbook":"deploy_kuma.yml","extra_vars":{"version":"1.4.0"}}}],`+
		`"metadata":{"capability":%q}},"configuration":{"returnImmediately":true}}`, uuid.New(), envelopeWork)
}

// timedAccepted is a subject whose callers send requests and do not wait for their results. A slice
// begins when the workers have answered the requests of all subjects of the server, which sent counts.
func timedAccepted(b *testing.B, name, addr string, callers int, answered, sent *atomic.Int64, status int, want string, request func() []byte) *subject {
	b.Helper()
	all := newCallers(b, addr, callers)
	return &subject{
		name: name, callers: callers, slice: taskSlice, timed: true,
		prepare: func(b *testing.B) {
			b.Helper()
			require.Eventually(b, func() bool { return answered.Load() == sent.Load() }, time.Minute, 5*time.Millisecond, "the workers do not get all tasks")
		},
		do: func(c, _ int) error {
			message := request()
			sent.Add(1)
			got, body, err := all[c].exchange(message)
			if err == nil && (got != status || !strings.Contains(string(body), want)) {
				err = fmt.Errorf("%s: %d %s", name, got, body)
			}
			return err
		},
	}
}
