// Drives a running server with the official clients: node check.mjs URL [KEY]. Exits 1 if anything is wrong.
import anthropic from './anthropic.mjs';
import openai from './openai.mjs';

let failed = 0;
for (const [name, check] of Object.entries({ ...openai, ...anthropic })) {
  try {
    await check();
    console.log(`ok      ${name}`);
  } catch (error) {
    ++failed;
    console.log(`FAILED  ${name}: ${error.stack ?? error}`);
  }
}
process.exit(failed ? 1 : 0);
