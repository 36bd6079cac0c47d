package bench

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// program is a comet program in a separate process.
type program struct {
	pid    int
	addr   string
	v5Addr string
	ready  time.Duration // from the start of the process to the line with its address
	stop   func()
}

// buildProgram builds the program as `make build` does, without debug information, and returns its
// path.
func buildProgram(b *testing.B) string {
	b.Helper()
	path := filepath.Join(b.TempDir(), "comet")
	cmd := exec.CommandContext(b.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", path, "comet/cmd/comet")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(b, err, "%s", out)
	return path
}

// runProgram starts a comet program with the access log in a file, as a server would run it.
func runProgram(b *testing.B, path string, data storage, args ...string) *program {
	b.Helper()
	v5Addr := freeAddress(b)
	all := append([]string{"serve", "--listen", "127.0.0.1:0", "--v5-listen", v5Addr, "--v5-self-registration", "--data", data.dir, "--log-format", "json"}, args...)
	cmd := exec.CommandContext(detached(), path, all...)
	cmd.Env = []string{"HOME=" + b.TempDir(), "COMET_ADMIN_TOKEN=" + adminToken}
	if data.url != "" {
		cmd.Env = append(cmd.Env, "COMET_DATABASE_URL="+data.url)
	}
	log := logFile(b)
	cmd.Stderr = log
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	started := time.Now()
	require.NoError(b, cmd.Start())
	stopped := false
	p := &program{pid: cmd.Process.Pid, v5Addr: v5Addr, stop: func() {
		if !stopped {
			stopped = true
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}}
	b.Cleanup(p.stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	p.ready = time.Since(started)
	text, _ := os.ReadFile(log.Name())
	require.NoError(b, err, "%s does not start: %s", path, text)
	found := regexp.MustCompile(`http://(\S+) `).FindStringSubmatch(line)
	require.NotNil(b, found, "no address in %q", line)
	p.addr = found[1]
	return p
}

// startProgram runs a comet program and returns it as a server.
func startProgram(b *testing.B, path string, data storage, args ...string) *cometServer {
	b.Helper()
	p := runProgram(b, path, data, args...)
	awaitReady(b, p.addr)
	return &cometServer{addr: p.addr, v5Addr: p.v5Addr, data: data, cpu: func() time.Duration { return processorTimeOf(p.pid) }}
}

// freeAddress returns an address on the loopback interface that is free at the moment.
func freeAddress(b *testing.B) string {
	b.Helper()
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer func() { _ = listener.Close() }()
	return listener.Addr().String()
}

// processorTimeOf returns the processor time of another process, 0 without /proc (Linux).
func processorTimeOf(pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, _ := bytes.Cut(text, []byte(") ")) // the name may contain spaces
	fields := strings.Fields(string(rest))
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * (time.Second / 100) // USER_HZ is 100 on Linux
}

// memory is what /proc/pid/status reports of a process, in MB.
type memory struct{ resident, private float64 }

// memoryOf returns the memory of a process. It needs /proc (Linux).
func memoryOf(b *testing.B, pid int) memory {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(b, err)
	megabytes := func(name string) float64 {
		_, rest, found := strings.Cut(string(text), name+":")
		require.True(b, found, "%s is missing in %s", name, text)
		kb, err := strconv.Atoi(strings.Fields(rest)[0])
		require.NoError(b, err)
		return float64(kb) / 1024
	}
	return memory{resident: megabytes("VmRSS"), private: megabytes("RssAnon")}
}
