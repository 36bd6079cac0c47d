package remote

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/a2a/client"
)

// maxResult limits the content of the artifacts of a task, in bytes.
const maxResult = 16 << 20

// artifact is the content of an artifact by its kind. Texts of one artifact are pieces of one text.
type artifact struct {
	id    string
	text  []byte
	data  []json.RawMessage
	files []file
	bytes int
}

// file is a file in the parameters or the result of a task, as in package a2a.
type file struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Bytes     []byte `json:"bytes,omitempty"`
	URL       string `json:"url,omitempty"`
}

func (a *artifact) add(parts []client.Part) {
	for _, p := range parts {
		switch {
		case p.Text != nil:
			a.text = append(a.text, *p.Text...)
			a.bytes += len(*p.Text)
		case p.Data != nil:
			a.data = append(a.data, p.Data)
			a.bytes += len(p.Data)
		default:
			a.files = append(a.files, file{p.Filename, p.MediaType, p.Raw, p.URL})
			a.bytes += len(p.Raw) + len(p.URL)
		}
	}
}

func (a *artifact) isText() bool { return len(a.text) > 0 && a.data == nil && a.files == nil }

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
func (o *output) add(e client.Event) error {
	switch {
	case e.Task != nil:
		o.artifacts, o.replaced = nil, true
		for _, a := range e.Task.Artifacts {
			o.artifact(a.ArtifactID).add(a.Parts)
		}
		if len(o.artifacts) == 0 && e.TaskState() == a2a.TaskStateCompleted && e.Task.Status.Message != nil {
			o.message(e.Task.Status.Message)
		}
	case e.Message != nil:
		o.message(e.Message)
	case e.StatusUpdate != nil && e.TaskState() == a2a.TaskStateCompleted && len(o.artifacts) == 0 && e.StatusUpdate.Status.Message != nil:
		o.message(e.StatusUpdate.Status.Message)
	case e.ArtifactUpdate != nil:
		u := e.ArtifactUpdate
		a := o.artifact(u.Artifact.ArtifactID)
		if !u.Append {
			*a, o.replaced = artifact{id: a.id}, true
		}
		a.add(u.Artifact.Parts)
		o.streaming = o.streaming || u.Append || !u.LastChunk
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
func (o *output) message(m *client.Message) {
	o.artifacts, o.replaced = nil, true
	for _, p := range m.Parts {
		a := &artifact{}
		a.add([]client.Part{p})
		o.artifacts = append(o.artifacts, a)
	}
}

func (o *output) artifact(id string) *artifact {
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
	var out struct {
		Text  *string         `json:"text,omitempty"`
		Data  json.RawMessage `json:"data,omitempty"`
		Files []file          `json:"files,omitempty"`
	}
	var texts []string
	var data []json.RawMessage
	for _, a := range o.artifacts {
		if len(a.text) > 0 {
			texts = append(texts, string(a.text))
		}
		data, out.Files = append(data, a.data...), append(out.Files, a.files...)
	}
	if texts != nil {
		out.Text = new(strings.Join(texts, "\n"))
	}
	switch {
	case len(data) == 1 && out.Text == nil && out.Files == nil:
		return data[0]
	case len(data) == 1:
		out.Data = data[0]
	case len(data) > 1:
		out.Data, _ = json.Marshal(data) // JSON
	case out.Text == nil && out.Files == nil:
		return nil
	}
	all, _ := json.Marshal(out) // decoded JSON
	return all
}
