package archive

import (
	"bytes"
	"io"
	"os"
	"path"
)

// One reads a file of an archive that is itself a file. The size is the file's in bytes, and
// -1 if the archive has none of that name. What has more than most bytes is not read.
func One(archived, name string, most int64) (content []byte, size int64, err error) {
	f, err := os.Open(archived)
	if err != nil {
		return nil, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, 0, err
	}
	var text *bytes.Buffer
	size = -1
	if _, _, err := Read(f, info.Size(), Limits{}, func(entry string, length int64) io.Writer {
		if path.Clean(entry) != name {
			return nil
		}
		text, size = nil, length // the last of a name is the one that is unpacked
		if size > most {
			return nil
		}
		text = &bytes.Buffer{}
		return text
	}); err != nil {
		return nil, 0, err
	}
	if text == nil {
		return nil, size, nil
	}
	return text.Bytes(), size, nil
}
