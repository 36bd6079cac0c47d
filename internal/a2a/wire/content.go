package wire

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"comet/internal/input"
)

// File is a file in the parameters or the result of a task.
type File struct {
	Name      string `json:"name,omitempty"`
	MediaType string `json:"media_type,omitempty"`
	Bytes     []byte `json:"bytes,omitempty"`
	URL       string `json:"url,omitempty"`
}

// Content is the content of parts as the parameters or the result of a task have it.
type Content struct {
	Text      *string         `json:"text,omitempty"`
	Data      json.RawMessage `json:"data,omitempty"`
	Files     []File          `json:"files,omitempty"`
	MessageID string          `json:"message_id,omitempty"`
}

// ContentOf returns the content of parts: their texts separated by line breaks, and data, which is a list if there are several.
func ContentOf(parts a2a.ContentParts) (out Content) {
	var texts []string
	var data []json.RawMessage
	for _, p := range parts {
		switch c := p.Content.(type) {
		case a2a.Text:
			texts = append(texts, string(c))
		case a2a.Data:
			data = append(data, RawData(c))
		case a2a.Raw:
			out.Files = append(out.Files, File{Name: p.Filename, MediaType: p.MediaType, Bytes: c})
		case a2a.URL:
			out.Files = append(out.Files, File{Name: p.Filename, MediaType: p.MediaType, URL: string(c)})
		}
	}
	if texts != nil {
		out.Text = new(strings.Join(texts, "\n"))
	}
	if len(data) == 1 {
		out.Data = data[0]
	} else if data != nil {
		out.Data = encode(data)
	}
	return out
}

// Encode returns the content as JSON.
func (c Content) Encode() json.RawMessage { return encode(c) }

// PartsOf returns the parts of an object with text, files, and possibly data. ok is false for other values, and for objects with
// other members than also. If that is message, it is a text, too.
func PartsOf(value []byte, also string) (parts a2a.ContentParts, ok bool) {
	var in struct {
		Text    *string         `json:"text"`
		Message *string         `json:"message"`
		Data    json.RawMessage `json:"data"`
		Files   []File          `json:"files"`
	}
	known := true
	exact := input.EachMember(value, func(name string, _ []byte) bool {
		known = known && slices.Contains([]string{"text", "data", "files", also}, name)
		return known
	})
	if !exact || json.Unmarshal(value, &in) != nil || in.Text == nil && in.Message == nil && in.Files == nil {
		return nil, false
	}
	for _, text := range []*string{in.Message, in.Text} {
		if text != nil {
			parts = append(parts, a2a.NewTextPart(*text))
		}
	}
	if in.Data != nil {
		parts = append(parts, a2a.NewDataPart(in.Data))
	}
	for _, f := range in.Files {
		p := &a2a.Part{Content: a2a.Raw(f.Bytes), Filename: f.Name, MediaType: f.MediaType}
		if f.URL != "" {
			p.Content = a2a.URL(f.URL)
		}
		parts = append(parts, p)
	}
	return parts, len(parts) > 0
}

// RawData returns the JSON of a data part, whose value is that of Decode, or JSON.
func RawData(d a2a.Data) json.RawMessage {
	raw, _ := d.Value.(json.RawMessage)
	return raw
}

// Text returns the texts of parts, with data as JSON.
func Text(parts a2a.ContentParts) string {
	var lines []string
	for _, p := range parts {
		switch c := p.Content.(type) {
		case a2a.Text:
			lines = append(lines, string(c))
		case a2a.Data:
			lines = append(lines, string(RawData(c)))
		}
	}
	return strings.Join(lines, "\n")
}
