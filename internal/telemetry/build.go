package telemetry

import (
	"cmp"
	"runtime/debug"
)

// Build identifies the running program.
type Build struct {
	// Version is a release such as v1.2.3, or "dev".
	Version string `json:"version"`
	// Revision is the short commit the program was built from, with "-dirty"
	// where files were changed; "" where it is not known.
	Revision string `json:"revision"`
	// Time is the commit's time in RFC 3339, "" where it is not known.
	Time string `json:"time"`
	// Go is the toolchain's version.
	Go string `json:"go"`
}

// shortRevision is as much of a commit as a person reads.
const shortRevision = 12

// ReadBuild returns what the linker recorded. A version given by the caller (one
// that was set with -ldflags) wins over the module's.
func ReadBuild(version string) Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return buildOf(version, info)
}

func buildOf(version string, info *debug.BuildInfo) Build {
	b := Build{Version: cmp.Or(version, info.Main.Version), Go: info.GoVersion}
	if b.Version == "" || b.Version == "(devel)" {
		b.Version = "dev"
	}
	dirty := false
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value[:min(len(s.Value), shortRevision)]
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			dirty = s.Value == "true"
		}
	}
	if dirty && b.Revision != "" {
		b.Revision += "-dirty"
	}
	return b
}

// String is the build in one line.
func (b Build) String() string {
	text := "comet " + b.Version
	if b.Revision != "" {
		text += " (" + b.Revision + ")"
	}
	return text + " " + b.Go
}
