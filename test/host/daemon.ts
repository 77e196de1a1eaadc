import { startHost } from '../../host/host.ts'

/** A host in a process of its own, which a test can kill: `node daemon.ts <folder> <key>` prints its address. */
const [, , folder = '', key = ''] = process.argv
const host = await startHost({ folder, key, isDurable: false })
console.log(JSON.stringify({ url: host.url, gatewayPort: host.gatewayPort, run: host.run }))
process.on('SIGTERM', () => host.stop().then(() => process.exit(0)))
