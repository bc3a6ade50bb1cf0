// Prints what the OpenTelemetry Collector's own code reads in a file of profiles: samples by how their stacks end.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"go.opentelemetry.io/collector/pdata/pprofile"
)

func main() {
	bytes, err := os.ReadFile(os.Args[1])
	if err != nil {
		panic(err)
	}
	profiles, err := (&pprofile.ProtoUnmarshaler{}).UnmarshalProfiles(bytes)
	if err != nil {
		panic(err)
	}
	dictionary := profiles.Dictionary()
	samples := map[string]int{}
	for _, resource := range profiles.ResourceProfiles().All() {
		for _, scope := range resource.ScopeProfiles().All() {
			for _, profile := range scope.Profiles().All() {
				for _, sample := range profile.Samples().All() {
					attributes, err := pprofile.FromAttributeIndices(dictionary.AttributeTable(), sample, dictionary)
					if err != nil {
						panic(err)
					}
					end, _ := attributes.Get("fpprof.stack")
					samples[end.Str()] += sample.TimestampsUnixNano().Len()
				}
			}
		}
	}
	printed, err := json.Marshal(samples)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(printed))
}
