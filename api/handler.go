package api

import (
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"
)

// handlerFunc is an HTTP handler that returns what went wrong instead of writing
// it; handle adapts it.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// responder writes every answer of this door: bodies, problems, the log lines
// that go with them. Handlers and middlewares that answer by themselves share one.
type responder struct {
	log     *slog.Logger
	buffers *sync.Pool
	json    json.Options
	now     func() time.Time
}

func newResponder(log *slog.Logger) *responder {
	return &responder{
		log:     log,
		buffers: newBufferPool(),
		now:     time.Now,
		// Struct tags mean what they mean in the rest of the Go world, and maps
		// come out in one order, so that equal answers have equal ETags.
		json: json.JoinOptions(json.Deterministic(true), jsonv1.OmitEmptyWithLegacySemantics(true)),
	}
}

// handle adapts a handlerFunc: the error it returns becomes the answer.
func (p *responder) handle(h handlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			p.fail(w, r, err)
		}
	}
}
