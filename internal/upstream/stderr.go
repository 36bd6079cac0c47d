package upstream

import (
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"comet/internal/words"
)

const (
	keptLines = 20   // of standard error, for Status
	maxLine   = 2000 // characters of one
	lineRate  = 20   // lines a second that go to the log
	lineBurst = 200
)

// stderrLines are what a program writes to its standard error. All of it is read, or the
// program would wait; what is kept and logged is bounded.
type stderrLines struct {
	ended chan struct{} // there will be no more
	mu    sync.Mutex
	last  []string
}

func newStderrLines() *stderrLines { return &stderrLines{ended: make(chan struct{})} }

// readAll reads to the end.
func (l *stderrLines) readAll(r io.Reader, s *secrets, log *slog.Logger) {
	in := newLineReader(r, 64<<10)
	limit := rate.NewLimiter(lineRate, lineBurst)
	silent := 0
	for {
		line, over, err := in.next()
		text := words.ClipTo(s.mask(string(line)), maxLine)
		if over != nil {
			text = "(a line of more than 65536 bytes)"
		}
		if text != "" {
			l.add(text)
			if limit.AllowN(time.Now(), 1) {
				log.Info("an upstream writes", "line", text, "left_out", silent)
				silent = 0
			} else {
				silent++
			}
		}
		if err != nil {
			return
		}
	}
}

func (l *stderrLines) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.last) == keptLines {
		l.last = slices.Delete(l.last, 0, 1)
	}
	l.last = append(l.last, line)
}

// lines returns the last ones, oldest first.
func (l *stderrLines) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.last)
}
