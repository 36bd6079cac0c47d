package program

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"

	"comet/agent"
)

// maxLine is the longest line of output, in bytes; longer ones are split.
const maxLine = 64 << 10

// task is a piece of work; an *agent.Work is one.
type task interface {
	io.Writer
	Progress(percent int, step string) error
	TokensOf(model string, n int64)
	Type() string
	TaskID() uuid.UUID
	RequestID() uuid.UUID
	TraceID() uuid.UUID
	Parameters() json.RawMessage
	Hints() agent.Hints
}

// commandOutput collects the lines of both streams of a command.
type commandOutput struct {
	to      task
	pumps   []*pump
	reading sync.WaitGroup
	ended   atomic.Bool // the command has ended

	mu   sync.Mutex
	tail tail
	// openLine is the stream whose last line is incomplete: a line of the other stream starts a new
	// line.
	openLine *pump
}

// writeLine handles a line, complete or not. Output that cannot be sent any more is kept for the
// result: the command must not block on it.
func (o *commandOutput) writeLine(from *pump, text []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if from.directives && o.openLine != from && bytes.HasPrefix(text, []byte("::")) && o.runDirective(string(text)) {
		return
	}
	if o.openLine != nil && o.openLine != from {
		text = append([]byte("\n"), text...)
	}
	if o.openLine = nil; text[len(text)-1] != '\n' {
		o.openLine = from
	}
	o.tail.add(text)
	_, _ = o.to.Write(text)
}

// runDirective executes a directive such as "::progress 40 pulling images", and reports whether the
// line is one.
func (o *commandOutput) runDirective(line string) bool {
	word, rest, _ := strings.Cut(strings.TrimRight(line, "\r\n"), " ")
	number, text, _ := strings.Cut(strings.TrimSpace(rest), " ")
	n, err := strconv.ParseInt(number, 10, 64)
	if text = strings.TrimSpace(text); err != nil || n < 0 {
		return false
	}
	switch word {
	case "::progress":
		if n > 100 {
			return false
		}
		_ = o.to.Progress(int(n), text)
	case "::tokens":
		o.to.TokensOf(text, n)
	default:
		return false
	}
	return true
}

// tail keeps the end of a text.
type tail struct {
	keep int
	text []byte
	cut  bool
}

func (t *tail) add(text []byte) {
	t.text = append(t.text, text...)
	if len(t.text) > 2*t.keep {
		t.trim()
	}
}

func (t *tail) trim() {
	if over := len(t.text) - t.keep; over > 0 {
		t.text, t.cut = append(t.text[:0], t.text[over:]...), true
	}
}

// String is the end of the text, from the start of a line if it was cut.
func (t *tail) String() string {
	if t.trim(); !t.cut {
		return string(t.text)
	}
	const mark = "[earlier output is omitted]\n"
	rest := t.text
	if i := bytes.IndexByte(rest, '\n'); i >= 0 && i+1 < len(rest) {
		rest = rest[i+1:]
	}
	return mark + string(rest)
}

// pump reads one stream of a command.
type pump struct {
	from, into *os.File
	directives bool // lines may be directives
	out        *commandOutput
}

// attach connects a command before it is started.
func (o *commandOutput) attach(cmd *exec.Cmd) error {
	for i, stream := range []*io.Writer{&cmd.Stdout, &cmd.Stderr} {
		r, w, err := os.Pipe()
		if err != nil {
			o.abandon()
			return err
		}
		*stream = w
		o.pumps = append(o.pumps, &pump{from: r, into: w, directives: i == 0, out: o})
	}
	return nil
}

// abandon closes the streams of a command that did not start.
func (o *commandOutput) abandon() {
	for _, p := range o.pumps {
		_, _ = p.into.Close(), p.from.Close()
	}
}

// start reads from a command that has started.
func (o *commandOutput) start() {
	for _, p := range o.pumps {
		_ = p.into.Close()
		o.reading.Go(p.run)
	}
}

// finish waits for the output of a command that has ended. A process outside of its group may
// hold a stream open; finish does not wait for it.
func (o *commandOutput) finish() {
	o.ended.Store(true)
	for _, p := range o.pumps {
		_ = p.from.SetReadDeadline(time.Now().Add(outputDelay))
	}
	o.reading.Wait()
}

// run handles the lines of the stream. A line that is too long is handled in parts.
func (p *pump) run() {
	defer func() { _ = p.from.Close() }()
	for in := bufio.NewReaderSize(p.from, maxLine); ; {
		line, err := in.ReadSlice('\n')
		if len(line) > 0 {
			p.out.writeLine(p, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
		if p.out.ended.Load() { // sending to the server may have blocked
			_ = p.from.SetReadDeadline(time.Now().Add(outputDelay))
		}
	}
}
