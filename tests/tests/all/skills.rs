//! Skills: a sandbox sees copies of the enabled ones, and can't change the source.

use sandgate::values::*;
use sandgate::{Code, Scope};
use sandgate_tests::support::{Kind, Subject, command, drive, failure, run, sh};

#[test]
fn enabled_ones_are_visible_and_disabled_ones_are_not() {
    drive(async {
        let source = tempfile::tempdir().unwrap();
        for (skill, body) in [
            ("public/pdf", "about pdf"),
            ("public/secret-draft", "not yet"),
            ("custom/ann/mine", "ann's own"),
            ("custom/bob/his", "bob's own"),
        ] {
            let folder = source.path().join(skill);
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("SKILL.md"), body).unwrap();
        }
        let path = source.path().to_owned();
        let subject = Subject::open_with(Kind::Local, |config| {
            config.skills.host_path = Some(path);
            config.skills.disabled = vec!["secret-draft".into()];
        })
        .await;
        let sandbox = subject.sandbox().await;
        let all = sh(&sandbox, "cd /mnt/skills && find . -name SKILL.md | sort").await;
        assert_eq!(all, "./custom/mine/SKILL.md\n./public/pdf/SKILL.md\n");
        let read = |path: &'static str| {
            let sandbox = &sandbox;
            async move { sandbox.read(&sandbox.path(path).unwrap(), ReadRange::All, 100).await }
        };
        assert_eq!(&read("/mnt/skills/public/pdf/SKILL.md").await.unwrap()[..], b"about pdf");
        for path in ["/mnt/skills/public/secret-draft/SKILL.md", "/mnt/skills/custom/his/SKILL.md"] {
            assert_eq!(failure(read(path).await).code(), Code::NotFound, "{path}");
        }
        // From inside, neither by commands nor by file operations.
        for script in
            ["echo x > /mnt/skills/public/pdf/SKILL.md", "rm -r /mnt/skills/custom/mine", "touch /mnt/skills/public/x"]
        {
            assert!(!run(&sandbox, command(script)).await.success(), "{script}");
        }
        let pdf = sandbox.path("/mnt/skills/public/pdf/SKILL.md").unwrap();
        assert_eq!(failure(sandbox.write(&pdf, "x", WriteOptions::default()).await).code(), Code::ReadOnly);
        assert_eq!(failure(sandbox.remove(&pdf, false).await).code(), Code::ReadOnly);
        assert_eq!(std::fs::read_to_string(source.path().join("public/pdf/SKILL.md")).unwrap(), "about pdf");
        // Another user has other ones.
        let bob = Scope::new("bob".parse().unwrap(), "t1".parse().unwrap());
        let bob = subject.gateway().acquire(&bob).await.unwrap();
        let all = sh(&bob, "cd /mnt/skills && find . -name SKILL.md | sort").await;
        assert_eq!(all, "./custom/his/SKILL.md\n./public/pdf/SKILL.md\n");
        // What an operator adds is there for the next turn.
        let added = source.path().join("public/added");
        std::fs::create_dir(&added).unwrap();
        std::fs::write(added.join("SKILL.md"), "new").unwrap();
        let sandbox = subject.sandbox().await;
        assert_eq!(sh(&sandbox, "cat /mnt/skills/public/added/SKILL.md").await, "new");
        subject.gateway().shutdown().await;
    });
}
