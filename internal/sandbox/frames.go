package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// Parent and child exchange frames: four bytes of length, the most significant first, a byte
// that says the kind, and JSON. The length counts the JSON alone.
//
//	child ──► parent   ready, compiled, call, read, log, done, failed
//	parent ──► child   run, answer
const (
	kindReady    byte = 'B' // the engine has booted
	kindRun      byte = 'R'
	kindCompiled byte = 'J'
	kindCall     byte = 'C'
	kindRead     byte = 'F'
	kindAnswer   byte = 'A'
	kindLog      byte = 'L'
	kindDone     byte = 'D'
	kindFailed   byte = 'E'
)

const frameHeader = 5

// maxFromParent bounds a run's frame, most of which are context, tools and code.
const maxFromParent = maxContext + maxAnswer + maxCompiled + 8<<20

type frame struct {
	kind byte
	body []byte
}

type readyFrame struct{}

// runFrame is what a child has to do. It has code, or compiled what became of it.
type runFrame struct {
	Code     string          `json:"code,omitempty"`
	Compiled *compiled       `json:"compiled,omitempty"`
	Context  json.RawMessage `json:"context"`
	Servers  []server        `json:"servers"`
	Timeout  int64           `json:"timeout_ms"`
	MemoryMB int             `json:"memory_mb"`
	Result   int             `json:"max_result"`
	Logs     int             `json:"max_logs"`
	Calls    int             `json:"max_calls"`
}

// compiled is code made of TypeScript, and the way back to its lines.
type compiled struct {
	Code     string `json:"code"`
	Mappings string `json:"mappings"` // as in a source map
	Lines    int    `json:"lines"`    // of the TypeScript
}

type callFrame struct {
	ID     int             `json:"id"`
	Server string          `json:"server"`
	Tool   string          `json:"tool"`
	Args   json.RawMessage `json:"args"`
}

type readFrame struct {
	ID   int    `json:"id"`
	Path string `json:"path"`
}

// answerFrame ends a call or a read: with a value, or with an error that has a name.
type answerFrame struct {
	ID    int             `json:"id"`
	Value json.RawMessage `json:"value,omitempty"`
	Name  string          `json:"name,omitempty"`
	Error string          `json:"error,omitempty"`
}

type doneFrame struct {
	Value json.RawMessage `json:"value"`
}

type failedFrame struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"`
	Stack   string `json:"stack,omitempty"`
	// Null is an exception without a value. Code may throw that, and the engine does when it
	// has no memory for another one.
	Null bool `json:"null,omitempty"`
}

// writeFrame writes one frame in one piece.
func writeFrame(w io.Writer, kind byte, v any) error {
	out := bytes.NewBuffer(make([]byte, frameHeader))
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false) // a result must not grow on its way
	if err := enc.Encode(v); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(out.Bytes(), uint32(out.Len()-frameHeader))
	out.Bytes()[frameHeader-1] = kind
	_, err := w.Write(out.Bytes())
	return err
}

var errFrame = errors.New("a frame that is none")

// readFrameFrom reads one frame of at most limit bytes.
func readFrameFrom(r io.Reader, limit int) (frame, error) {
	var head [frameHeader]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	size := binary.BigEndian.Uint32(head[:])
	if int64(size) > int64(limit) {
		return frame{}, fmt.Errorf("%w: %d bytes", errFrame, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(r, body); err != nil {
		return frame{}, err
	}
	return frame{head[4], body}, nil
}

// decode reads the JSON of a frame, in which nothing may be that is not known.
func decode[T any](body []byte) (T, error) {
	var v T
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(&v); err != nil {
		return v, fmt.Errorf("%w: %w", errFrame, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return v, fmt.Errorf("%w: it goes on", errFrame)
	}
	return v, nil
}
