import { type ChildProcess, spawn } from 'node:child_process'
import { subscribe } from 'node:diagnostics_channel'
import { platform } from 'node:os'

// Reads `+ pid` and `- pid`. Its input ends with this process, even if that is killed; then it stops the remaining programs.
const SCRIPT = `
pids=' '
while read -r change pid; do
  case $change in
    +) pids="$pids$pid " ;;
    -) case $pids in *" $pid "*) pids="\${pids%% $pid *} \${pids#* $pid }" ;; esac ;;
  esac
done
for pid in $pids; do kill -INT "$pid" 2>/dev/null; done
`

let isGuarded = false

/**
 * From now on, programs that this process starts do not outlive it, even if it is killed and cannot stop them. `mayOutlive`
 * names exceptions.
 */
export function guardChildren(mayOutlive: (file: string) => boolean = () => false) {
  if (isGuarded || platform() === 'win32') return
  isGuarded = true
  const guard = spawn('/bin/sh', ['-c', SCRIPT], { detached: true, stdio: ['pipe', 'ignore', 'ignore'] })
  const { stdin } = guard
  guard.on('error', ignore)
  stdin.on('error', ignore)
  guard.unref()
  if ('unref' in stdin && typeof stdin.unref === 'function') stdin.unref()

  subscribe('child_process', (message) => {
    const { process: child } = message as { process: ChildProcess }
    // The program's file is known only after `spawn`.
    child.once('spawn', () => void (mayOutlive(child.spawnfile) || stdin.write(`+ ${child.pid}\n`)))
    child.once('exit', () => stdin.write(`- ${child.pid}\n`))
  })
}

// Everything works without the guard too, but then a killed process leaves programs behind.
function ignore() {}
