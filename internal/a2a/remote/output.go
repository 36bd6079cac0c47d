package remote

import (
	"bytes"
	"encoding/json"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
	"comet/internal/a2a/wire"
)

// maxResult limits the content of the artifacts of a task, in bytes.
const maxResult = 16 << 20

// artifact is the content of an artifact: one text, of which its texts are pieces, and other parts.
type artifact struct {
	id    a2a.ArtifactID
	text  []byte
	rest  a2a.ContentParts
	bytes int
}

func (a *artifact) add(parts a2a.ContentParts) {
	for _, p := range parts {
		if text, ok := p.Content.(a2a.Text); ok {
			a.text = append(a.text, text...)
			a.bytes += len(text)
			continue
		}
		a.rest = append(a.rest, p)
		data, _ := p.Content.(a2a.Data)
		a.bytes += len(wire.RawData(data)) + len(p.Raw()) + len(p.URL())
	}
}

func (a *artifact) isText() bool { return len(a.text) > 0 && a.rest == nil }

// output collects the artifacts of a task. A single text is reported in pieces of {"text": …} as it arrives.
type output struct {
	artifacts []*artifact
	// streaming is set once a text has arrived in pieces. told is the part of the text that was reported, as toldBytes
	// of JSON; replaced is set if it may no longer be the beginning of the text.
	streaming, replaced bool
	told                []byte
	toldBytes           int64
}

// add adds the content of an event. It returns an error if the content exceeds maxResult.
func (o *output) add(e a2a.Event) error {
	switch e := e.(type) {
	case *a2a.Task:
		o.artifacts, o.replaced = nil, true
		for _, a := range e.Artifacts {
			o.artifact(a.ID).add(a.Parts)
		}
	case *a2a.Message:
		o.message(e)
	case *a2a.TaskArtifactUpdateEvent:
		a := o.artifact(e.Artifact.ID)
		if !e.Append {
			*a, o.replaced = artifact{id: a.id}, true
		}
		a.add(e.Artifact.Parts)
		o.streaming = o.streaming || e.Append || !e.LastChunk
	}
	if s := wire.StatusOf(e); s.State == a2a.TaskStateCompleted && s.Message != nil && len(o.artifacts) == 0 {
		o.message(s.Message)
	}
	total := 0
	for _, a := range o.artifacts {
		total += a.bytes
	}
	if total > maxResult {
		return &client.Error{Kind: client.TooLarge, Text: "the artifacts of the remote agent have more than 16 MiB"}
	}
	return nil
}

// message makes a message the result. Its texts are separate texts.
func (o *output) message(m *a2a.Message) {
	o.artifacts, o.replaced = nil, true
	for _, p := range m.Parts {
		a := &artifact{}
		a.add(a2a.ContentParts{p})
		o.artifacts = append(o.artifacts, a)
	}
}

func (o *output) artifact(id a2a.ArtifactID) *artifact {
	for _, a := range o.artifacts {
		if a.id == id {
			return a
		}
	}
	a := &artifact{id: id}
	o.artifacts = append(o.artifacts, a)
	return a
}

// piece returns the JSON that follows what was reported, nil for nothing. Its caller calls reported once it is stored.
func (o *output) piece() []byte {
	if !o.streaming || len(o.artifacts) != 1 || !o.artifacts[0].isText() {
		return nil
	}
	text := o.artifacts[0].text
	if o.replaced && !bytes.HasPrefix(text, o.told) || len(text) <= len(o.told) {
		return nil
	}
	return o.encode(text)
}

const textHead, textTail = `{"text":"`, `"}`

// encode returns the rest of a text after what was reported as a part of a JSON string.
func (o *output) encode(text []byte) []byte {
	quoted, _ := json.Marshal(string(text[len(o.told):])) // a string
	quoted = quoted[1 : len(quoted)-1]
	if o.toldBytes == 0 {
		quoted = append([]byte(textHead), quoted...)
	}
	return quoted
}

func (o *output) reported(piece []byte) {
	o.told = append(o.told, o.artifacts[0].text[len(o.told):]...)
	o.toldBytes += int64(len(piece))
	o.replaced = false
}

// end returns the rest of the JSON of a text that was reported in pieces, nil if the result is another one.
func (o *output) end() []byte {
	if o.toldBytes == 0 || len(o.artifacts) != 1 || !o.artifacts[0].isText() || !bytes.HasPrefix(o.artifacts[0].text, o.told) {
		return nil
	}
	return append(o.encode(o.artifacts[0].text), textTail...)
}

// result returns the whole result: the JSON of a single data part, or an object with text, data and files. It is nil for none.
func (o *output) result() []byte {
	var parts a2a.ContentParts
	for _, a := range o.artifacts {
		if len(a.text) > 0 {
			parts = append(parts, a2a.NewTextPart(string(a.text)))
		}
		parts = append(parts, a.rest...)
	}
	content := wire.ContentOf(parts)
	switch {
	case len(parts) == 0:
		return nil
	case len(parts) == 1 && content.Data != nil:
		return content.Data
	}
	return content.Encode()
}
