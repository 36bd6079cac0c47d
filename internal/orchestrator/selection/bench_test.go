package selection_test

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"comet/internal/orchestrator/selection"
	"comet/models"
)

// manyAgents returns agents with three capabilities each, so that every capability has as many
// holders. A benchmark can then request another capability each time and finds the caches as cold
// as in a server.
func manyAgents(agents, holders int) (roster []selection.Agent, capabilities []string) {
	n := max(1, agents/holders)
	for c := range n {
		for _, kind := range []string{"first", "second", "third"} {
			capabilities = append(capabilities, fmt.Sprintf("custom:%s_capability_%d", kind, c))
		}
	}
	at := time.Date(2026, 1, 19, 4, 0, 0, 0, time.UTC)
	for i := range agents {
		roster = append(roster, selection.Agent{
			ID: fmt.Sprintf("agent-%06d", i), Type: []string{"infra", "code"}[i%2], SphereID: 1 + i%9,
			Capabilities: capabilities[3*(i%n) : 3*(i%n)+3], Active: true, Worker: models.Worker{
				State: models.WorkerOnline, Concurrency: 8, InFlight: i % 5, Load: i * 7 % 100, LastAssignedAt: at.Add(time.Duration(i*31%977) * time.Second),
			},
		})
	}
	return roster, capabilities
}

func index(agents, holders int) (*selection.Index, []string) {
	roster, capabilities := manyAgents(agents, holders)
	x := indexOf(roster...)
	return x, capabilities
}

// BenchmarkSelect requests another capability each time, or three of the same agents.
func BenchmarkSelect(b *testing.B) {
	for _, agents := range []int{1_000, 10_000, 100_000} {
		for _, holders := range []int{1, 10, 100} {
			for _, required := range []int{1, 3} {
				b.Run(fmt.Sprintf("agents=%d/holders=%d/required=%d", agents, holders, required), func(b *testing.B) {
					x, capabilities := index(agents, holders)
					b.ReportAllocs()
					i := 0
					for b.Loop() {
						i = (i + 3) % len(capabilities)
						x.Select(selection.Request{Capabilities: capabilities[i : i+required]})
					}
				})
			}
		}
	}
}

// BenchmarkRouting requests another capability each time, by its name or with "-" for "_". Half of the
// agents registered each of the two names.
func BenchmarkRouting(b *testing.B) {
	for _, agents := range []int{1_000, 10_000, 100_000} {
		for _, holders := range []int{1, 10, 100} {
			b.Run(fmt.Sprintf("agents=%d/holders=%d", agents, holders), func(b *testing.B) {
				roster, capabilities := manyAgents(agents, holders)
				folded := make([]string, len(capabilities))
				for i, name := range capabilities {
					folded[i] = strings.ReplaceAll(name, "_", "-")
				}
				for i := range roster {
					if at := 3 * (i % (len(capabilities) / 3)); i/holders%2 == 0 {
						roster[i].Capabilities = folded[at : at+3]
					}
				}
				x := indexOf(roster...)
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					i = (i + 3) % len(capabilities)
					x.Select(selection.Request{Capabilities: capabilities[i : i+1], Weighted: true})
				}
			})
		}
	}
}

// BenchmarkSelectOneCapability requests the same capability each time, to measure Select without
// cache misses.
func BenchmarkSelectOneCapability(b *testing.B) {
	x, capabilities := index(100_000, 100)
	for name, rank := range map[string]selection.Ranking{"ByScore": nil, "by load": byLoad} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				x.Select(selection.Request{Capabilities: capabilities[:1], Rank: rank})
			}
		})
	}
}

// BenchmarkSelectWhileChanging selects on every core while one goroutine changes the load of
// agents, or adds and removes them.
func BenchmarkSelectWhileChanging(b *testing.B) {
	for name, change := range map[string]func(x *selection.Index, roster []selection.Agent, i int){
		"nothing": nil,
		"load": func(x *selection.Index, roster []selection.Agent, i int) {
			x.Change(roster[i%len(roster)].ID, func(a *selection.Agent) bool { a.Worker.InFlight = i % 9; return true })
		},
		"capabilities": func(x *selection.Index, roster []selection.Agent, i int) {
			a := roster[i%len(roster)]
			a.Active = i/len(roster)%2 == 1
			put(x, a)
		},
	} {
		b.Run(name, func(b *testing.B) {
			roster, capabilities := manyAgents(100_000, 100)
			x := indexOf(roster...)
			stop, stopped := make(chan struct{}), make(chan int)
			go func() {
				n := 0
				for ; change != nil; n++ {
					select {
					case <-stop:
						stopped <- n
						return
					default:
						change(x, roster, n*7919)
					}
				}
				<-stop
				stopped <- n
			}()
			b.ReportAllocs()
			b.ResetTimer()
			var start atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				for i := int(start.Add(997)); pb.Next(); i++ {
					x.Select(selection.Request{Capabilities: capabilities[i%len(capabilities) : i%len(capabilities)+1]})
				}
			})
			close(stop)
			b.ReportMetric(float64(<-stopped)/float64(b.N), "changes/op")
		})
	}
}

func BenchmarkChange(b *testing.B) {
	roster, _ := manyAgents(100_000, 100)
	x := indexOf(roster...)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % len(roster)
		x.Change(roster[i].ID, func(a *selection.Agent) bool { a.Worker.InFlight++; return true })
	}
}

// BenchmarkFill also reports the memory of an agent without its own strings.
func BenchmarkFill(b *testing.B) {
	roster, _ := manyAgents(100_000, 100)
	var x *selection.Index
	before := heap()
	b.ReportAllocs()
	for b.Loop() {
		x = indexOf(roster...)
	}
	b.ReportMetric(float64(heap()-before)/float64(len(roster)), "B/agent")
	runtime.KeepAlive(x)
	runtime.KeepAlive(roster)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
