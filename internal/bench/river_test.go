package bench

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"comet/store/storetest"
)

const (
	riverPipeline = "River, insert-work-complete"
	riverWaiting  = "River, requester waits"
	riverSlice    = time.Second
)

// riverProgram is tools/riverbench, a module of its own, so that River is no dependency of
// comet.
type riverProgram struct {
	in  io.Writer
	out *bufio.Reader
}

// riverSubjects are jobs of River in a new database of the same PostgreSQL: inserted without waiting
// for them, and with callers that wait.
func riverSubjects(b *testing.B, callers int) []*subject {
	b.Helper()
	p := startRiver(b)
	return []*subject{
		{name: riverPipeline, callers: callers, measure: func(b *testing.B) pace { b.Helper(); return p.measure(b, "pipeline", callers) }},
		{name: riverWaiting, callers: callers, measure: func(b *testing.B) pace { b.Helper(); return p.measure(b, "waiting", callers) }},
	}
}

func startRiver(b *testing.B) *riverProgram {
	b.Helper()
	path := filepath.Join(b.TempDir(), "river")
	build := exec.CommandContext(b.Context(), "go", "build", "-o", path, ".")
	build.Dir = filepath.Join("..", "..", "tools", "riverbench")
	out, err := build.CombinedOutput()
	require.NoError(b, err, "%s", out)
	cmd := exec.CommandContext(detached(), path, storetest.EmptyPostgres(b))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(b, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(b, err)
	require.NoError(b, cmd.Start())
	b.Cleanup(func() {
		_ = stdin.Close() // ends the program
		if err := cmd.Wait(); err != nil {
			b.Errorf("river: %v", err)
		}
	})
	return &riverProgram{in: stdin, out: bufio.NewReader(stdout)}
}

// measure runs one slice in the program.
func (p *riverProgram) measure(b *testing.B, mode string, callers int) pace {
	b.Helper()
	_, err := fmt.Fprintf(p.in, "%s %d %d\n", mode, callers, riverSlice.Milliseconds())
	require.NoError(b, err, "river has ended")
	line, err := p.out.ReadBytes('\n')
	require.NoError(b, err, "river has ended")
	var got struct {
		Rate, CPU float64
		Took      []time.Duration
	}
	require.NoError(b, json.Unmarshal(line, &got), "%s", line)
	require.Positive(b, got.Rate, "%s", line)
	return pace{rate: got.Rate, cpu: got.CPU, took: got.Took}
}
