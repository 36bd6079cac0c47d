package wire

import (
	"encoding/json"
	"maps"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"
)

// Version 0.3 differs from 1.0 in the names of states and roles, in its files, and in that messages, parts and events have a kind.

// members are the members in which 1.0 has an event of a kind.
var members = map[string]string{ //nolint:gochecknoglobals // a constant table
	"task": "task", "message": "message", "status-update": "statusUpdate", "artifact-update": "artifactUpdate",
}

// object is a JSON object.
type object = map[string]json.RawMessage

// Convert converts a message, a task, an update, or parameters with a message from 0.3 to 1.0, or the other way for legacy. It does
// not change other JSON.
func Convert(raw []byte, legacy bool) []byte { return convert(raw, legacy, maxDepth) }

// maxDepth is how deep an object of A2A is: an event, its status, and the message of that.
const maxDepth = 4

func convert(raw []byte, legacy bool, depth int) []byte {
	o := decodeObject(raw)
	if o == nil || depth == 0 {
		return raw
	}
	var status struct{ State a2a.TaskState }
	_ = json.Unmarshal(o["status"], &status) // none, or another type, has no state
	if delete(o, "kind"); legacy {
		addKind(o, status.State.Terminal())
	}
	for name, v := range o {
		switch name {
		case "role":
			o[name] = rename(v, "ROLE_", legacy)
		case "state":
			o[name] = rename(v, "TASK_STATE_", legacy)
		case "status", "artifact", "message":
			o[name] = convert(v, legacy, depth-1)
		case "artifacts", "history":
			o[name] = each(v, func(item []byte) []byte { return convert(item, legacy, depth-1) })
		case "parts":
			o[name] = each(v, func(item []byte) []byte { return convertPart(item, legacy) })
		}
	}
	return encode(o)
}

// addKind adds the kind of an object, and the members that are optional in 1.0 alone.
func addKind(o object, ended bool) {
	switch {
	case o["messageId"] != nil:
		o["kind"] = json.RawMessage(`"message"`)
	case o["id"] != nil && o["status"] != nil:
		o["kind"] = json.RawMessage(`"task"`)
	case o["status"] != nil:
		o["kind"], o["final"] = json.RawMessage(`"status-update"`), encode(ended)
	case o["artifact"] != nil:
		o["kind"] = json.RawMessage(`"artifact-update"`)
		for _, name := range []string{"append", "lastChunk"} {
			if o[name] == nil {
				o[name] = json.RawMessage("false")
			}
		}
	}
}

// fileNames are the names of the members of files: in 1.0, those of their part.
var fileNames = map[string]string{"name": "filename", "mimeType": "mediaType", "bytes": "raw", "uri": "url"} //nolint:gochecknoglobals // a constant table

func convertPart(raw []byte, legacy bool) []byte {
	o := decodeObject(raw)
	if o == nil {
		return raw
	}
	out, kind := object{}, ""
	_ = json.Unmarshal(o["kind"], &kind) // another type is no kind
	switch data := o["data"]; {
	case !legacy && (kind == "text" || kind == "data"):
		out[kind] = o[kind]
	case !legacy && kind == "file":
		for old, v := range decodeObject(o["file"]) {
			if name := fileNames[old]; name != "" && string(v) != "null" {
				out[name] = v
			}
		}
	case !legacy: // it has no content
	case o["text"] != nil:
		out["kind"], out["text"] = encode("text"), o["text"]
	case data != nil && data[0] == '{':
		out["kind"], out["data"] = encode("data"), data
	case data != nil: // it must be an object
		out["kind"], out["data"] = encode("data"), encode(object{"value": data})
	default:
		file := object{}
		for old, name := range fileNames {
			file[old] = o[name]
		}
		out["kind"], out["file"] = encode("file"), encode(file)
	}
	out["metadata"] = o["metadata"]
	return encode(out)
}

// rename converts a state such as TASK_STATE_INPUT_REQUIRED to input-required, or back; likewise a role.
func rename(raw json.RawMessage, prefix string, legacy bool) json.RawMessage {
	var name string
	if json.Unmarshal(raw, &name) != nil {
		return raw
	}
	switch {
	case legacy:
		name = strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, prefix)), "_", "-")
	case prefix == "ROLE_" || !strings.HasPrefix(name, prefix): // some agents of 0.3 have the states of 1.0
		name = prefix + strings.ReplaceAll(strings.ToUpper(name), "-", "_")
	}
	return encode(name)
}

// each converts the elements of a list.
func each(raw []byte, item func([]byte) []byte) json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil || list == nil {
		return raw
	}
	for i := range list {
		list[i] = item(list[i])
	}
	return encode(list)
}

func decodeObject(raw []byte) (o object) {
	_ = json.Unmarshal(raw, &o) // nil for another value
	return o
}

// encode encodes a value. Members that are nil are none.
func encode(v any) json.RawMessage {
	if o, ok := v.(object); ok {
		maps.DeleteFunc(o, func(_ string, member json.RawMessage) bool { return member == nil })
	}
	raw, _ := json.Marshal(v) // decoded JSON
	return raw
}
