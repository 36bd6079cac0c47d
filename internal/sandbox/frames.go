package sandbox

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	strictjson "github.com/go-json-experiment/json"
)

// Parent and child exchange frames: four bytes of length (big endian), one byte for the kind, and
// JSON. The length is that of the JSON.
//
//	child ──► parent   ready, compiled, call, read, log, done, failed
//	parent ──► child   run, response
const (
	kindReady    byte = 'B' // the engine is ready
	kindRun      byte = 'R'
	kindCompiled byte = 'J'
	kindCall     byte = 'C'
	kindRead     byte = 'F'
	kindResponse byte = 'A'
	kindLog      byte = 'L'
	kindDone     byte = 'D'
	kindFailed   byte = 'E'
)

const frameHeader = 5

// maxCompiled is the longest compiled code with its source map that the parent caches, in bytes.
const maxCompiled = 512 << 10

// maxFromParent is the longest frame from the parent, in bytes.
const maxFromParent = maxContext + maxResponse + maxCompiled + 8<<20

type frame struct {
	kind byte
	body []byte
}

// runFrame starts a run, with the code or with compiled code.
type runFrame struct {
	Code     string          `json:"code,omitempty"`
	Compiled *compiled       `json:"compiled,omitempty"`
	Context  json.RawMessage `json:"context"`
	Servers  []server        `json:"servers"`
	Timeout  int64           `json:"timeout_ms"`
	MemoryMB int             `json:"memory_mb"`
}

// compiled is JavaScript with the mappings to the lines of the TypeScript.
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

// responseFrame ends a call or a read: with a value, or with an error that has a name.
type responseFrame struct {
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
	// Null is true for an exception without a value: a thrown null, or the engine is out of memory.
	Null bool `json:"null,omitempty"`
}

// writeFrame writes a frame with one call of Write.
func writeFrame(w io.Writer, kind byte, v any) error {
	out := bytes.NewBuffer(make([]byte, frameHeader))
	enc := json.NewEncoder(out)
	enc.SetEscapeHTML(false) // escaping would make results longer
	if err := enc.Encode(v); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(out.Bytes(), uint32(out.Len()-frameHeader))
	out.Bytes()[frameHeader-1] = kind
	_, err := w.Write(out.Bytes())
	return err
}

var errFrame = errors.New("invalid frame")

// readFrameFrom reads a frame of at most limit bytes.
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

// decode decodes the JSON of a frame and rejects unknown members.
func decode[T any](body []byte) (T, error) {
	var v T
	if err := strictjson.Unmarshal(body, &v, strictjson.RejectUnknownMembers(true)); err != nil {
		return v, fmt.Errorf("%w: %w", errFrame, err)
	}
	return v, nil
}
