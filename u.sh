. /tmp/trialE/e.sh
T=/tmp/trialE; cd $T
rm -f prof.json prof.json.partial
( timeout -s INT 6 $P calibrate --ranks 2 --budget 30 --out prof.json --suite links,collectives,elementwise -q >/dev/null 2>c1.txt ); echo rc $?; cat c1.txt; ls -la prof*; jq -c '.suites|to_entries|map([.key,.value.budget_s])' prof.json.partial
