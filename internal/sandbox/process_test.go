package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/internal/sandbox"
)

// children returns the pids of the children of a process.
func children(t testing.TB, parent int) []int {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var all []int
	for _, path := range paths {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err == nil && fields[1] == strconv.Itoa(parent) {
			all = append(all, pid)
		}
	}
	return all
}

// TestProcesses runs alone because it counts the children of this process.

func TestProcesses(t *testing.T) { //nolint:paralleltest // see above
	t.Run("children are ready before they are needed", func(t *testing.T) {
		s := started(t, &sandbox.Options{Warm: 2})
		for range 5 {
			require.Eventually(t, func() bool {
				got, err := s.Run(t.Context(), sandbox.Request{Code: "2 + 2"})
				return err == nil && got.Metrics.Warm && string(got.Value) == "4"
			}, long, 5*time.Millisecond)
		}
	})
	require.Empty(t, children(t, os.Getpid()), "no child is left when the sandbox has stopped")

	t.Run("a ready child that is killed is replaced", func(t *testing.T) {
		s := started(t, &sandbox.Options{Warm: 1})
		require.Equal(t, "4", run(t, s, "2 + 2")) // starts the children
		var first []int
		require.Eventually(t, func() bool { first = children(t, os.Getpid()); return len(first) == 1 }, long, 5*time.Millisecond)
		require.NoError(t, syscall.Kill(first[0], syscall.SIGKILL))
		require.Eventually(t, func() bool {
			now := children(t, os.Getpid())
			return len(now) == 1 && now[0] != first[0]
		}, long, 5*time.Millisecond)
		require.Equal(t, "4", run(t, s, "2 + 2"))
	})

	t.Run("a child is killed during a run", func(t *testing.T) {
		s := started(t, nil)
		f := fails(t, s, sandbox.Request{
			Code: "console.log('before'); await a.b(); return 1", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
			Call: func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
				for _, pid := range children(t, os.Getpid()) {
					if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
						return nil, err
					}
				}
				<-ctx.Done() // the run is over
				return nil, ctx.Err()
			},
		})
		require.Equal(t, sandbox.Crashed, f.Name)
		require.Contains(t, f.Message, "killed")
		require.Equal(t, []sandbox.Log{{Level: "log", Message: "before"}}, f.Logs)
		require.Equal(t, "4", run(t, s, "2 + 2"))
	})

	t.Run("a child has only its pipes and the descriptors of the network poller of Go", func(t *testing.T) {
		s := started(t, nil)
		_, err := s.Run(t.Context(), sandbox.Request{
			Code: "await a.b()", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
			Call: func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
				for _, pid := range children(t, os.Getpid()) {
					links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(pid), "fd", "*"))
					if err != nil {
						return nil, err
					}
					for _, link := range links {
						if target, err := os.Readlink(link); err == nil && !strings.HasPrefix(target, "pipe:") && !strings.HasPrefix(target, "anon_inode:") {
							return nil, errors.New(target)
						}
					}
				}
				return nil, nil
			},
		})
		require.NoError(t, err)
	})

	t.Run("a run ends with the sandbox", func(t *testing.T) {
		s := started(t, nil)
		_, err := s.Run(t.Context(), sandbox.Request{
			Code: "await a.b()", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
			Call: func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
				stopping, cancel := context.WithCancel(context.Background())
				cancel()
				require.ErrorIs(t, s.Stop(stopping), context.Canceled) // Stop waits for this run
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		require.ErrorIs(t, err, sandbox.ErrStopped)
	})
	require.Empty(t, children(t, os.Getpid()))

	t.Run("concurrent runs leave no child", func(t *testing.T) {
		s := started(t, &sandbox.Options{Warm: 2, MaxRuns: 4})
		var all sync.WaitGroup
		for n := range 24 {
			all.Go(func() {
				got, err := s.Run(t.Context(), sandbox.Request{Code: "context.n * 2", Context: json.RawMessage(`{"n":` + strconv.Itoa(n) + `}`)})
				if err != nil || string(got.Value) != strconv.Itoa(2*n) {
					t.Errorf("%d: %s, %v", n, got.Value, err)
				}
			})
		}
		all.Wait()
	})
	require.Empty(t, children(t, os.Getpid()))
}

// TestNoChildOutlivesItsParent kills a process that has a sandbox.
func TestNoChildOutlivesItsParent(t *testing.T) {
	t.Parallel()
	parent := exec.CommandContext(t.Context(), "/proc/self/exe", "parent")
	out, err := parent.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, parent.Start())
	_, err = bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pids := children(t, parent.Process.Pid)
	require.Len(t, pids, 2) // one is ready, one runs
	require.NoError(t, parent.Process.Kill())
	require.Error(t, parent.Wait())
	require.Eventually(t, func() bool {
		for _, pid := range pids {
			if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) && !isZombie(pid) {
				return false
			}
		}
		return true
	}, long, 5*time.Millisecond)
}

// isZombie reports whether a process has ended and its parent has not waited for it.
func isZombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || bytes.Contains(stat, []byte(") Z "))
}

// actAsParent is the process that TestNoChildOutlivesItsParent kills.
func actAsParent() {
	s, err := sandbox.New(&sandbox.Options{Warm: 1, Timeout: long})
	if err != nil || s.Start(context.Background()) != nil {
		return
	}
	call := func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
		for len(children(&testing.T{}, os.Getpid())) < 2 && ctx.Err() == nil {
			<-time.After(time.Millisecond)
		}
		_, _ = os.Stdout.WriteString("ready\n")
		return json.RawMessage("1"), nil
	}
	_, _ = s.Run(context.Background(), sandbox.Request{Code: "await a.b(); while (true) {}", Tools: []sandbox.Tool{{Server: "a", Name: "b"}}, Call: call})
}

// actAsHostileChild acts as a child that violates the protocol.
func actAsHostileChild(violation string) {
	send := func(kind byte, body string) {
		head := binary.BigEndian.AppendUint32(nil, uint32(len(body)))
		_, _ = os.Stdout.Write(append(append(head, kind), body...))
	}
	send('B', `{}`)
	_, _ = io.ReadFull(os.Stdin, make([]byte, 5)) // the run has begun
	switch violation {
	case "garbage":
		_, _ = os.Stdout.WriteString(strings.Repeat("garbage ", 1000))
	case "unknown":
		send('?', `{}`)
	case "no JSON":
		send('D', `{"value":`)
	case "more":
		send('D', `{"value":1,"and":2}`)
	case "twice":
		send('D', `{"value":1}{"value":2}`)
	case "nothing":
		send('D', `{}`)
	case "large":
		send('D', `{"value":"`+strings.Repeat("x", 1<<20)+`"}`)
	case "huge":
		_, _ = os.Stdout.Write([]byte{0xFF, 0xFF, 0xFF, 0xFF, 'D', 'x'})
	case "a tool":
		send('C', `{"id":1,"server":"a","tool":"other","args":{}}`)
	case "a number":
		send('C', `{"id":2,"server":"a","tool":"b","args":{}}`)
	case "calls":
		for i := range 17 {
			send('C', `{"id":`+strconv.Itoa(i+1)+`,"server":"a","tool":"b","args":{}}`)
		}
	case "logs":
		for range 2000 {
			send('L', `{"level":"log","message":"x"}`)
		}
	case "a level":
		send('L', `{"level":"fatal","message":"x"}`)
	case "compiled":
		send('J', `{"code":"[0,()=>'poison']","mappings":"","lines":1}`)
		send('J', `{"code":"[0,()=>'poison']","mappings":"","lines":1}`)
	case "ready":
		send('B', `{}`)
	case "ends":
		return
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func violations() []string {
	return []string{
		"garbage", "unknown", "no JSON", "more", "twice", "nothing", "large", "huge", "a tool", "a number", "calls", "logs", "a level", "compiled", "ready", "ends",
	}
}

func TestHostileChild(t *testing.T) {
	t.Parallel()
	for _, violation := range violations() {
		t.Run(violation, func(t *testing.T) {
			t.Parallel()
			s := started(t, &sandbox.Options{Command: []string{"/proc/self/exe", "hostile-child", violation}})
			f := fails(t, s, sandbox.Request{
				Code: "1", Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
				Call: func(ctx context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
					<-ctx.Done()
					return nil, ctx.Err()
				},
			})
			require.Equal(t, sandbox.Crashed, f.Name, f)
		})
	}
	for _, command := range [][]string{{"/nowhere/at/all"}, {"/bin/true"}} {
		s := started(t, &sandbox.Options{Command: command})
		require.Equal(t, sandbox.Crashed, fails(t, s, sandbox.Request{Code: "1"}).Name)
	}
}

func TestChildIsConfined(t *testing.T) {
	t.Parallel()
	s := started(t, nil)
	var limits, status string
	_, err := s.Run(t.Context(), sandbox.Request{
		Code: "await a.b()", MemoryMB: 64, Timeout: 10 * time.Second, Tools: []sandbox.Tool{{Server: "a", Name: "b"}},
		Call: func(_ context.Context, _, _ string, _ json.RawMessage) (json.RawMessage, error) {
			// Other tests may have children too; the CPU limit identifies this one.
			for _, pid := range children(t, os.Getpid()) {
				all, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/limits")
				if fields := limit(string(all), "Max cpu time"); len(fields) > 1 && fields[0] == "23" {
					limits = string(all)
					text, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
					status = string(text)
				}
			}
			return nil, nil
		},
	})
	require.NoError(t, err)
	for _, name := range []string{"Max open files", "Max core file size", "Max file size"} {
		require.Equal(t, []string{"0", "0"}, limit(limits, name)[:2], name)
	}
	data, err := strconv.Atoi(limit(limits, "Max data size")[1])
	require.NoError(t, err)
	require.Less(t, data, 5<<30) // the race detector needs much
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"} {
		require.Contains(t, status, line+"\n")
	}
}

func limit(limits, name string) []string {
	_, after, _ := strings.Cut(limits, name)
	line, _, _ := strings.Cut(after, "\n")
	return strings.Fields(line)
}
